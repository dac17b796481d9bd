"""Physical bounds against products worked out by hand from the widths and clocks of data sheets."""

import pytest

from roofmon.model.roofline import Pipe, Roofline
from roofmon.telemetry.nvidia.bounds import (
    WIDTHS,
    dram_bound,
    memory_share,
    physical_ceilings,
    sm_count,
)


def roofline(capability: str, sms: int, clock_mhz: float, dram: float | None = None) -> Roofline:
    return Roofline(
        ceilings=physical_ceilings(
            compute_capability=capability,
            sms=sms,
            sm_clock_hz=clock_mhz * 1e6,
            dram_bytes_per_s=dram,
        )
    )


@pytest.mark.parametrize(
    ("capability", "sms", "clock_mhz", "pipe", "tera"),
    [
        ("9.0", 132, 1980, "vector/fp64", 33.5),
        ("9.0", 132, 1980, "vector/fp32", 66.9),
        ("9.0", 132, 1980, "vector/fp16", 133.8),
        ("9.0", 132, 1980, "tensor/fp64", 66.9),
        ("9.0", 132, 1980, "tensor/tf32", 535.3),
        ("9.0", 132, 1980, "tensor/bf16", 1070.5),
        ("9.0", 132, 1980, "tensor/fp8", 2141.1),
        ("9.0", 132, 1980, "tensor/int8", 2141.1),
        # Data sheets: V100, RTX 2080 Ti, A100, RTX A6000, L40S, B200, B300, RTX PRO 6000 Blackwell.
        ("7.0", 80, 1530, "tensor/fp16", 125),
        ("7.0", 80, 1530, "vector/fp64", 7.8),
        ("7.5", 68, 1635, "tensor/int8", 227.7),
        ("8.0", 108, 1410, "tensor/fp64", 19.5),
        ("8.0", 108, 1410, "tensor/tf32", 156),
        ("8.0", 108, 1410, "vector/fp16", 78),
        ("8.6", 84, 1800, "tensor/bf16", 154.8),
        ("8.6", 84, 1800, "vector/fp32", 38.7),
        ("8.9", 142, 2520, "tensor/fp8", 733),
        ("8.9", 142, 2520, "vector/fp32", 91.6),
        ("10.0", 148, 1850, "tensor/bf16", 2250),
        ("10.0", 148, 1965, "vector/fp32", 74.5),
        ("10.3", 160, 1900, "vector/fp64", 1.2),
        ("12.0", 188, 2617, "tensor/bf16", 503.8),
    ],
)
def test_peaks_are_those_of_the_data_sheets(
    capability: str, sms: int, clock_mhz: float, pipe: str, tera: float
) -> None:
    ceiling = roofline(capability, sms, clock_mhz).compute(Pipe.parse(pipe))
    assert ceiling is not None
    assert ceiling.value / 1e12 == pytest.approx(tera, rel=0.015)
    assert ceiling.ci_low == ceiling.value == ceiling.ci_high
    assert (ceiling.regime, ceiling.n, ceiling.clock_hz) == ("bound", 0, clock_mhz * 1e6)


def test_dram_moves_two_transfers_a_clock() -> None:
    assert dram_bound(3201e6, 6016) == pytest.approx(4.814e12, rel=1e-4)  # H200
    assert dram_bound(5001e6, 256) == pytest.approx(320e9, rel=1e-3)  # T4, GDDR6
    assert dram_bound(14001e6, 512) == pytest.approx(1792e9, rel=1e-3)  # RTX 5090, GDDR7


def test_l1_is_128_byte_a_clock() -> None:
    l1 = roofline("9.0", 132, 1980).bandwidth("l1")
    assert l1 is not None
    assert l1.value == pytest.approx(33.45e12, rel=1e-3)


def test_what_is_not_known_has_no_bound() -> None:
    unknown = roofline("3.5", 15, 900, dram=288e9)
    assert [c.name for c in unknown.ceilings] == ["DRAM"]
    assert roofline("7.0", 80, 1530).compute(Pipe("tensor", "bf16")) is None
    assert roofline("9.0", 132, 1980).bandwidth("dram") is None
    nothing = physical_ceilings(
        compute_capability="9.0", sms=None, sm_clock_hz=1e9, dram_bytes_per_s=None
    )
    assert nothing == ()


@pytest.mark.parametrize(
    ("capability", "cores", "sms"),
    [("9.0", 16896, 132), ("8.0", 6912, 108), ("8.6", 10496, 82), ("7.5", 2560, 40)],
)
def test_sms_follow_from_cores(capability: str, cores: int, sms: int) -> None:
    assert sm_count(cores, capability) == sms
    assert sm_count(cores, "99.0") is None


@pytest.mark.parametrize(
    ("instance_mib", "gpu_mib", "share"),
    [
        (4864, 40536, 1 / 8),  # A100 40GB, 1g.5gb
        (19968, 40536, 4 / 8),  # 3g.20gb
        (40192, 40536, 1),  # 7g.40gb
        (16384, 143771, 1 / 8),  # H200, 1g.18gb
        (10, 143771, 1 / 8),
    ],
)
def test_an_instance_has_eighths_of_the_memory(
    instance_mib: int, gpu_mib: int, share: float
) -> None:
    assert memory_share(instance_mib, gpu_mib) == share


def test_every_row_has_vector_rates_and_half_precision_tensor_work() -> None:
    assert set(WIDTHS) == {"7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"}
    for widths in WIDTHS.values():
        assert {"vector/fp64", "vector/fp32", "vector/fp16", "tensor/fp16"} <= {
            pipe.key for pipe in widths
        }
