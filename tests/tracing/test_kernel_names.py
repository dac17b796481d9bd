"""Short and demangled names: written by hand, recorded ones where they are, and names made to do harm."""

import gzip
import json
import time
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmon.tracing.demangle import NO_WORKER, TOO_SLOW, UNKNOWN, Demangled, Demangler
from roofmon.tracing.names import short_name

SHARED = Path(__file__).parents[3] / "shared"

TORCH = "at::native::"
FUNCTOR = (
    f"{TORCH}AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, {TORCH}binary_internal::"
)
LAMBDA = "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}"
MAINLOOP = "cutlass::gemm::collective::CollectiveMma<cutlass::bfloat16_t, 4>"


@pytest.mark.parametrize(
    ("full", "short"),
    [
        # What needs nothing done.
        ("saxpy", "saxpy"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("_topk_forward", "_topk_forward"),
        # cuBLAS
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet bf16 256×128 NNT"),
        ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_TNT", "nvjet fp16 256×128 TNT"),
        ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT", "nvjet fp8 128×128 TNT"),
        ("nvjet_tst_64x8_64x16_2x1_v_bz_splitK_NNT", "nvjet bf16 64×8 NNT splitK"),
        ("nvjet_new_8x8_64x4_1x2_h_bz_TNN", "nvjet new 8×8 TNN"),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute",
            "xmma gemm tf32 128×256×32",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_execute_kernel",
            "xmma gemm fp32 256×128×8",
        ),
        (
            "void splitKreduce_kernel<32, 16, int, float, float>(float*)",
            "splitKreduce_kernel<float>",
        ),
        # cuDNN
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
            "cudnn sdpa flash bprop f16 64×64×64",
        ),
        (
            "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1_kernel0_0",
            "cudnn sdpa flash fprop f16 16×128×128",
        ),
        # CUTLASS
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>"
            "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8::Params)",
            "cutlass bf16 gemm relu 256×128×32 tn",
        ),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f16_128x128x64_1x2x1_0_tnn_align8_x",
            "cutlass fp16 gemm 128×128×64 tnn",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>, "
            f"{MAINLOOP}, cutlass::epilogue::Epilogue<int> > >(P)",
            "cutlass GemmUniversal<bf16>",
        ),
        # Triton, from the compiler of PyTorch and by hand
        ("triton_poi_fused_add_cos_sin_0", "triton poi0 add_cos_sin"),
        ("triton_red_fused_native_layer_norm_12", "triton red12 native_layer_norm"),
        ("matmul_kernel_0d1d2d3de4c5c", "matmul_kernel"),
        # CUB
        (
            "void cub::CUB_200802_800_900_NS::DeviceReduceKernel<cub::Policy<float>::P600, float*, "
            "unsigned int, cuda::std::plus<float>, float>(float*, float)",
            "cub DeviceReduceKernel<float>",
        ),
        # PyTorch
        (
            f"void {TORCH}vectorized_elementwise_kernel<8, {FUNCTOR}MulFunctor<float> >, "
            "std::array<char*, 2ul> >(int, T1, T2)",
            "elementwise mul<bf16>",
        ),
        (
            f"void {TORCH}unrolled_elementwise_kernel<{TORCH}direct_copy_kernel_cuda{LAMBDA}, "
            "std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int> >(int, T1)",
            "elementwise unrolled copy<float>",
        ),
        (
            f"void {TORCH}elementwise_kernel<128, 2, {TORCH}gpu_kernel_impl_nocast<"
            f"{TORCH}direct_copy_kernel_cuda{LAMBDA}>(at::TensorIteratorBase&, int const&)"
            "::{lambda(int)#1}>(int, T1)",
            "elementwise strided copy<float>",
        ),
        (
            f"void {TORCH}reduce_kernel<512, 1, {TORCH}ReduceOp<c10::BFloat16, {TORCH}MeanOps<"
            "c10::BFloat16, float, float, c10::BFloat16>, unsigned int, c10::BFloat16, 4> >(T1)",
            "reduce mean<bf16>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, "
            "false, false>(c10::BFloat16*, c10::BFloat16 const*, int)",
            "softmax_warp_forward<bf16>",
        ),
        (
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
            "cutlass::bfloat16_t>, false, true>(pytorch_flash::Flash_fwd_params)",
            "flash_fwd<bf16, 128>",
        ),
        # Anybody's own
        ("add(float*, float*, int)", "add"),
        ("void transpose<float, 32, 8>(float const*, float*, int)", "transpose<float, 32, 8>"),
        ("void my::ns::scale<__half>(__half*, float) [clone .kernel]", "scale<fp16>"),
        (
            "void clover::par_ranged1d_kernel<build_field(global_variables&)::{lambda(int)#2}>"
            "(clover::Range1d, build_field(global_variables&)::{lambda(int)#2})",
            "par_ranged1d_kernel<build_field#2>",
        ),
        (
            "std::enable_if<(((8)>(0)))&&vllm::ok<float>::exists, void>::type vllm::norm<float, 8>(int)",
            "norm<float, 8>",
        ),
        (
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "nccl AllGather RING LL",
        ),
    ],
)
def test_a_short_name_says_what_it_computes_on_which_type(full, short):
    assert short_name(full) == short


@given(st.text(st.sampled_from("ab_:<>(),{} #1*&-~[]"), max_size=60))
def test_any_text_has_a_short_name(text):
    name = short_name(text)
    assert len(name) <= 80
    assert bool(name) == bool(text)


def test_long_names_keep_both_ends():
    names = [f"Cijk_{'x' * 200}_{end}" for end in ("NN", "NT")]
    assert len({short_name(name) for name in names}) == 2
    assert all(short_name(name).startswith("Cijk_xxx") for name in names)


def test_demangled_and_plain_names_come_back_in_their_order():
    demangler = Demangler()
    names = ["saxpy", "_Z3foov", "_ZN2ns3barIfLi3EEEvPT_", "_Znonsense", "_Z3foov", "sp ace\n"]
    found = demangler.demangle(names)
    assert [f.full for f in found] == [
        "saxpy",
        "foo()",
        "void ns::bar<float, 3>(float*)",
        "_Znonsense",
        "foo()",
        "sp ace\n",
    ]
    assert [f.short for f in found] == [
        "saxpy",
        "foo",
        "bar<float, 3>",
        "_Znonsense",
        "foo",
        "sp ace\n",
    ]
    assert [f.reason for f in found] == ["", "", "", UNKNOWN, "", ""]
    demangler.close()


def test_five_thousand_names_at_once():
    demangler = Demangler()
    found = demangler.demangle([f"_Z{len(f'kernel{i}')}kernel{i}PfS_i" for i in range(5000)])
    assert found[4321] == Demangled("kernel4321(float*, float*, int)", "kernel4321")
    assert all(not f.reason for f in found)
    demangler.close()


def bomb(levels: int) -> str:
    """f<A, P<A, A>, P<P<A, A>, P<A, A>>, …>, each argument twice as long as the one before it."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parts = [f"S1_IS{digits[2 + i]}_S{digits[2 + i]}_E" for i in range(levels)]
    return f"_Z1fI1A1PIS0_S0_E{''.join(parts)}EvT_"


@pytest.mark.slow
def test_a_name_that_expands_without_end_costs_a_second_and_no_other_name():
    demangler = Demangler()
    assert demangler.demangle([bomb(1)])[0].full.startswith(
        "void f<A, P<A, A>, P<P<A, A>, P<A, A> >"
    )
    begin = time.monotonic()
    found = demangler.demangle(["_Z3foov", bomb(32), "_Z3barv"])
    assert time.monotonic() - begin < 15
    assert [f.full for f in found] == ["foo()", bomb(32), "bar()"]
    assert found[1].reason in (TOO_SLOW, UNKNOWN)
    demangler.close()


@pytest.mark.slow
def test_names_made_to_kill_the_demangler_are_given_up_on():
    demangler = Demangler()
    bombs = [bomb(levels) for levels in range(25, 33)]
    reasons = [f.reason for f in demangler.demangle(bombs)]
    assert set(reasons) <= {TOO_SLOW, UNKNOWN, NO_WORKER}
    assert all(reasons)
    demangler.close()


def test_plain_names_made_to_be_searched_for_ever_cost_seconds_in_all() -> None:
    demangler = Demangler()
    name = "sm80_xmma_gemm_" + "f1" * 8000
    begin = time.monotonic()
    found = demangler.demangle([f"{name}{i}" for i in range(20)] + ["saxpy"])
    assert time.monotonic() - begin < 20
    assert all(len(f.short) <= 80 for f in found)
    demangler.close()


def recorded_names() -> set[str]:
    names = set()
    for path in SHARED.glob("cases/torch_trace/*.json.gz"):
        text = gzip.decompress(path.read_bytes()).decode(errors="replace")
        events = json.loads(text, strict=False)
        events = events if isinstance(events, list) else events.get("traceEvents", [])
        names |= {e["name"] for e in events if str(e.get("cat")).lower() == "kernel"}
    return names


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded cases are not here")
def test_recorded_kernels_keep_apart_under_their_short_names():
    demangler = Demangler()
    table = (SHARED / "h200/names.tsv").read_text().splitlines()
    mangled = [line.split("\t")[1] for line in table]
    found = demangler.demangle(mangled)
    demangler.close()
    assert not any(f.reason for f in found)
    by_name = defaultdict(set)
    for full in {f.full for f in found} | recorded_names():
        by_name[short_name(full)].add(full)
    count = sum(map(len, by_name.values()))
    assert len(by_name) > 0.9 * count  # the rest differs in details that the drill-down has
    assert max(map(len, by_name)) <= 80
    # In one program the kernels of the H200 recording are all told apart.
    assert len({f.short for f in found}) == len(set(mangled))
