"""GPM's percentages as rates, against loops of known work on an H200 (132 SMs, 1980 MHz, 4.814 TB/s)."""

import pytest

from roofmon.telemetry.nvidia.bounds import WIDTHS, dram_bound
from roofmon.telemetry.nvidia.point import FIELDS, NOT_SAMPLED, Metric, Peaks, Point, interpret

H200 = Peaks(dram_bound(3201e6, 6016), 132, WIDTHS["9.0"])
BUSY = {Metric.SM: 99.0, Metric.OCCUPANCY: 60.0, Metric.GRAPHICS: 100.0}


def point(read: dict[Metric, float], clock_mhz: float | None = 1980, peaks: Peaks = H200) -> Point:
    return interpret(read, {}, peaks, None if clock_mhz is None else clock_mhz * 1e6)


def test_a_vector_add() -> None:
    found = point({**BUSY, Metric.DRAM: 89.9, Metric.FP32: 4.0})
    assert found.rates is not None
    assert found.rates["dram"] == pytest.approx(4.328e12, rel=1e-3)
    assert found.values["sm_busy"] == pytest.approx(0.99)
    assert found.values["occupancy"] == pytest.approx(0.60)


def test_matrix_products() -> None:
    rates = point({**BUSY, Metric.FP32: 76.3, Metric.DRAM: 5.0}).rates
    assert rates is not None
    assert rates["vector/fp32"] == pytest.approx(51.05e12, rel=1e-3)
    # 90 % of 4096 × 132 SMs at the 1400 MHz that a power cap leaves: 681 TFLOP/s.
    rates = point({**BUSY, Metric.HMMA_TENSOR: 90.0}, clock_mhz=1400).rates
    assert rates is not None
    assert rates["tensor/bf16"] == pytest.approx(681.2e12, rel=1e-3)
    # DFMA, not DMMA, is fp64 tensor work: 94.4 % of 256 × 132 × 1.98 GHz.
    rates = point({**BUSY, Metric.DFMA_TENSOR: 94.4, Metric.IMMA_TENSOR: 67.0}).rates
    assert rates is not None
    assert rates["tensor/fp64"] == pytest.approx(63.16e12, rel=1e-3)
    assert rates["tensor/int8"] == pytest.approx(1434e12, rel=1e-3)


def test_an_idle_gpu_does_nothing_and_that_is_measured() -> None:
    rates = point(dict.fromkeys(Metric, 0.0), clock_mhz=345).rates
    assert rates is not None
    assert set(rates.values()) == {0.0}


@pytest.mark.parametrize("busy", [{Metric.SM: 40.0}, {Metric.SM: 0.0, Metric.GRAPHICS: 97.0}])
def test_zero_with_activity_is_not_a_measurement(busy: dict[Metric, float]) -> None:
    found = point({**dict.fromkeys(Metric, 0.0), **busy})
    assert found.rates is None
    assert found.missing["rates"] == NOT_SAMPLED
    assert point({**dict.fromkeys(Metric, 0.0), **busy, Metric.DRAM: 0.01}).rates is not None


def test_links_count_in_binary_units() -> None:
    found = point({Metric.PCIE_RX: 1000.0, Metric.PCIE_TX: 0.0, Metric.NVLINK_TX: 2.0})
    assert found.values["pcie_in_bytes_per_s"] == 1000 * 2**20
    assert found.values["pcie_out_bytes_per_s"] == 0
    assert found.values["nvlink_out_bytes_per_s"] == 2 * 2**20
    assert "nvlink_in_bytes_per_s" in found.missing


@pytest.mark.parametrize("garbage", [2147483632.0, -1.0, float("nan"), float("inf"), 105.1])
def test_a_value_that_cannot_be_is_left_out_with_the_reason(garbage: float) -> None:
    found = point({**BUSY, Metric.SM: garbage, Metric.DRAM: garbage, Metric.FP32: 50.0})
    assert "sm_busy" not in found.values
    assert "out of 0 … 105" in found.missing["sm_busy"]
    assert found.rates is not None
    assert set(found.rates) == {"vector/fp32"}


def test_without_a_clock_only_bytes_are_known() -> None:
    rates = point({**BUSY, Metric.DRAM: 50.0, Metric.FP32: 50.0}, clock_mhz=None).rates
    assert rates == {"dram": pytest.approx(2.407e12, rel=1e-3)}


def test_without_any_peak_there_is_no_point() -> None:
    found = point({**BUSY, Metric.DRAM: 50.0}, peaks=Peaks(None, None, {}))
    assert found.rates is None
    assert "no physical peak" in found.missing["rates"]


def test_every_field_has_a_value_or_a_reason() -> None:
    found = interpret({}, dict.fromkeys(Metric, "the driver does not tell"), H200, 1e9)
    assert set(found.missing) == set(FIELDS)
    assert found.values == {}
    assert set(found.missing.values()) == {"the driver does not tell"}
