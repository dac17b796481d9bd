"""Precision and instruction from kernel names, of libraries as they call their kernels."""

import csv
import gzip
import json

import pytest
from recording import RECORDING, load_excerpt, needs_recording

from roofmon.counters.precision import Computes, computes
from roofmon.model.roofline import Pipe

CASES = RECORDING.parent / "cases"


def told(key: str, instruction: str = "") -> Computes:
    return Computes(Pipe.parse(key) if key else None, instruction)


SIXTEEN_BITS = Pipe.parse("tensor/bf16"), Pipe.parse("tensor/fp16")
NAMES = {
    # cuBLAS and cuBLASLt
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": told("tensor/bf16", "wgmma"),
    "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT": told("tensor/fp16", "wgmma"),
    "nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT": told("tensor/fp8", "wgmma"),
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT": told("tensor/bf16"),
    "nvjet_sm90_xyz_64x64_64x16_2x1_v_bz_TNT": Computes(None, "wgmma"),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_"
    "kernel__5x_cublas": told("tensor/tf32", "wgmma"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4_"
    "execute_kernel__5x_cublas": told("vector/fp32"),
    "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x16_stage3_warpsize2x2x1_tensor16x8x8_execute_"
    "kernel__5x_cublas": told("tensor/fp64"),
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x32x64_stage5_warpsize2x"
    "2x1_g1_tensor16x8x16_t1r3s3_execute_kernel__5x_cudnn": told("tensor/bf16", "mma.sync"),
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_"
    "warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel_cudnn": told("tensor/tf32", "mma.sync"),
    "sm90_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1": told(
        "tensor/fp8", "wgmma"
    ),
    "sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x128x64_tensor16x8x32": told(
        "tensor/int8", "mma.sync"
    ),
    "ampere_sgemm_32x32_sliced1x4_tn": told("vector/fp32"),
    "volta_dgemm_64x64_nn": told("vector/fp64"),
    "turing_h1688gemm_128x128_ldg8_nn": told("tensor/fp16", "mma.sync"),
    "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn": told("tensor/fp16", "mma.sync"),
    # CUTLASS
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_tn_align8>(cutlass_80"
    "_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_tn_align8::Params)": told(
        "tensor/bf16", "mma.sync"
    ),
    "void cutlass::Kernel<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align8>(T1)": told(
        "tensor/fp16", "mma.sync"
    ),
    "cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_nn_align4": told("tensor/tf32", "mma.sync"),
    "cutlass_80_tensorop_d884gemm_64x64_16x4_nt_align1": told("tensor/fp64"),
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<…MainloopSm90TmaGmmaWarpSpecialized…,"
    " cutlass::float_e4m3_t, …, cutlass::bfloat16_t>>": told("tensor/fp8", "wgmma"),
    # attention
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_"
    "0": Computes(None, "wgmma", SIXTEEN_BITS),
    "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1_k0": Computes(
        None, "mma.sync", SIXTEEN_BITS
    ),
    "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlas"
    "s10bfloat16_tE19Flash_kernel_traitsILi128ELi128ELi64ELi4ES3_EELb0EEEvNS_16Flash_fwd_paramsE": told(
        "tensor/bf16", "mma.sync"
    ),
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t,"
    " cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)": told("tensor/bf16", "mma.sync"),
    "void paged_attention_kernel<__nv_bfloat16, __nv_fp8_e4m3>(…)": told(
        ""
    ),  # which it multiplies?
    # what sounds like it
    "void at::native::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float, 32u>(long, long)": told(
        ""
    ),
    # the user's own, and Triton's
    "matmul_bf16_kernel": told("tensor/bf16"),
    "_int8_matmul_kernel": told("tensor/int8"),
    "wgmma_e5m2": told("tensor/fp8", "wgmma"),
    "matmul_kernel": told(""),
    "triton_mm": told(""),
    "moe_gemm_fp4": told(""),
    # names with types that multiply nothing
    "triton_poi_fused_bf16_add_0": told(""),
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>": told(
        ""
    ),
    "void convert_half_to_float(__half const*, float*)": told(""),
    "": told(""),
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    assert computes(name) == NAMES[name]


def test_what_is_not_a_product_in_the_recording_has_no_precision():
    kernels = load_excerpt()[3]
    products = ("gemm", "nvjet", "flash_fwd")
    for name, _, _ in kernels:
        assert (computes(name).pipe is not None) == any(part in name for part in products), name


@pytest.mark.slow
@needs_recording("../cases")
def test_names_in_reports_of_many_machines():
    """Every kernel of every report and trace: none breaks, and what names its type is understood."""
    names = set()
    for path in CASES.rglob("*"):
        if path.suffix == ".csv":
            with path.open(errors="replace", newline="") as text:
                names |= {cell for row in csv.reader(text) for cell in row if len(cell) > 8}
        elif path.name.endswith(".json.gz"):
            with gzip.open(path, "rt", errors="replace") as text:
                events = json.load(text)["traceEvents"]
            names |= {e.get("name", "") for e in events if e.get("cat") == "kernel"}
    assert len(names) > 500
    expected = {
        "s16816gemm_relu_bf16": "tensor/bf16",
        "s161616gemm_f16": "tensor/fp16",
        "tf32f32_tf32f32": "tensor/tf32",
        "nvjet_tst_": "tensor/bf16",
        "sgemm": "vector/fp32",
    }
    for part, key in expected.items():
        found = {computes(name).pipe for name in names if part in name and "scudnn" not in name}
        assert found == {Pipe.parse(key)}, part
