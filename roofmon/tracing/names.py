"""Short names for kernels: what an engineer calls them, from what the compiler and the libraries call them.

The full name is never lost (it stands in the drill-down), so a short one only has to tell the kernels of
one program apart at a glance: what it computes, on which type, with which tile. Libraries whose naming
is known get a rule; any other C++ name loses its return type, namespaces, parameters and whatever of its
template arguments is too long.
"""

import re
from collections.abc import Callable, Iterator

_LONGEST = 80
_SHORT_ARGUMENTS = 24
"""Template arguments up to this length are kept whole: `transpose<float, 32, 8>`."""

_TYPES = {
    "c10::BFloat16": "bf16", "__nv_bfloat16": "bf16", "cutlass::bfloat16_t": "bf16", "nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16", "c10::Half": "fp16", "__half": "fp16", "half": "fp16",
    "cutlass::half_t": "fp16", "c10::Float8_e4m3fn": "e4m3", "c10::Float8_e5m2": "e5m2",
    "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "cutlass::float_e4m3_t": "e4m3",
    "cutlass::float_e5m2_t": "e5m2", "cutlass::tfloat32_t": "tf32", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "float": "float", "double": "double", "int": "int",
    "unsigned int": "uint", "long": "long", "unsigned long": "ulong", "bool": "bool", "short": "short",
    "signed char": "int8", "unsigned char": "uint8", "char": "char", "float2": "float2", "float4": "float4",
}  # fmt: skip

_INDEX_TYPES = ("int", "unsigned int", "bool", "char")

# cuBLAS's nvjet kernels: which letters were seen for which type, on an H200.
_NVJET_TYPES = {"tst": "bf16", "hsh": "fp16", "qqtst": "fp8"}
_NVJET = re.compile(
    r"nvjet_(?:sm\d+_)?(?P<type>[a-z]+)_(?P<m>\d+)x(?P<n>\d+)_\d+x\d+_\d+x\d+_(?P<flags>\w+_)?(?P<layout>[NT]{3})$"
)
_NVJET_TOLD = ("splitK", "bias", "2cta")

# The second group of types is that of the operands: f32f32_tf32f32_f32 multiplies tf32.
_XMMA = re.compile(
    r"sm\d+_xmma_(?P<what>[a-z]+)_(?:\w+?_)??(?:b?t?f\d+){2}_(?P<type>b?t?f\d+)\w+?"
    r"_tilesize(?P<tile>\d+x\d+x\d+)_"
)
_TYPE_CODES = {"f64": "fp64", "f32": "fp32", "tf32": "tf32", "f16": "fp16", "bf16": "bf16"}

_CUTLASS = re.compile(
    r"cutlass(?:3x)?_(?:sm)?\d+_(?:(?:wmma_)?tensorop_|simt_)?(?P<what>\w+?)"
    r"_(?P<mn>\d+x\d+)_(?P<k>\d+)x\d+_(?P<layout>[nt]{2})(?:_align\d+)?"
)
_CUTLASS3 = re.compile(
    r"cutlass3x_sm\d+_\w*?(?P<gemm>gemm|fprop|dgrad|wgrad)_(?P<type>[a-z]+\d+)_\w*?_(?P<tile>\d+x\d+x\d+)"
    r"_\d+x\d+x\d+_\d+_(?P<layout>[nt]{3})_"
)
_CUTLASS_OPERATION = re.compile(
    r"(?P<a>[a-z]+\d+)_[a-z]+?\d*(?P<gemm>gemm|fprop|dgrad|wgrad)(?P<more>\w*)"
)
_CUDNN = re.compile(
    r"cudnn_generated_fort_native_(?P<what>\w+?)_sm\d+_(?P<how>\w+?)_w?g?mma_(?P<type>[a-z]+\d+)_knob_\d+"
    r"_(?P<tile>\d+x\d+x\d+)_"
)
_TRITON = re.compile(r"triton_(?P<kind>[a-z]+)_fused_(?P<what>\w*?)_?(?P<number>\d+)")
_TRITON_SIGNATURE = re.compile(r"_(?:\d+(?:c|de?)){2,}\d*$")

_ELEMENTWISE = {
    "vectorized_elementwise_kernel": "elementwise",
    "vectorized_templated_elementwise_kernel": "elementwise",
    "unrolled_elementwise_kernel": "elementwise unrolled",
    "elementwise_kernel": "elementwise strided",
    "elementwise_kernel_manual_unroll": "elementwise strided",
    "index_elementwise_kernel": "index",
    "distribution_elementwise_grid_stride_kernel": "random",
    "unrolled_elementwise_kernel_for_multi_outputs": "elementwise unrolled",
    "multi_tensor_apply_kernel": "multi_tensor",
    "reduce_kernel": "reduce",
}
# What such a template does stands in the functor or lambda that it is made for, the innermost last.
_OPERATION = re.compile(
    r"CUDAFunctor(?:OnSelf)?_(?P<a>\w+)|(?P<b>[A-Za-z0-9]+)Functor\b|(?P<c>\w+?)_functor\b|(?P<d>\w+)Ops\b"
    r"|\blaunch_(?P<e>\w+?)(?=\()|(?P<f>\w+?)_(?:cuda_)?kernel(?:_cuda|_impl)?\b"
)
_NO_OPERATION = {
    "AUnary",
    "BUnary",
    "Binary",
    "gpu",
    "opmath_gpu",
    "distribution_nullary",
    "OpMath",
}
_LAMBDA = re.compile(r"\{lambda\((?P<types>[^{}]*)\)#(?P<number>\d+)\}")


def short_name(full: str) -> str:
    """The name for the table of a kernel whose demangled name (or plain name) is `full`."""
    short = (_cpp(full) if "(" in full or "<" in full else _plain(full)) or full
    if len(short) <= _LONGEST:
        return short
    # Machine-made names differ at either end.
    return f"{short[: _LONGEST * 2 // 3]}…{short[-_LONGEST // 3 + 1 :]}"


def _plain(name: str) -> str:
    """A name without C++ in it."""
    for pattern, words in _LIBRARIES:
        if match := pattern.match(name):
            return words(match)
    return _TRITON_SIGNATURE.sub("", name)


def _nvjet(match: re.Match[str]) -> str:
    kind = _NVJET_TYPES.get(match["type"], match["type"])
    flags = [flag for flag in _NVJET_TOLD if flag in (match["flags"] or "").split("_")]
    return " ".join(["nvjet", kind, f"{match['m']}×{match['n']}", match["layout"], *flags])


def _xmma(match: re.Match[str]) -> str:
    kind = _TYPE_CODES.get(match["type"], match["type"])
    return f"xmma {match['what']} {kind} {_times(match['tile'])}"


def _cudnn(match: re.Match[str]) -> str:
    how = match["how"].replace("_", " ")
    return f"cudnn {match['what']} {how} {match['type']} {_times(match['tile'])}"


def _cutlass3(match: re.Match[str]) -> str:
    kind = _cutlass_type(match["type"])
    return f"cutlass {kind} {match['gemm']} {_times(match['tile'])} {match['layout']}"


def _cutlass(match: re.Match[str]) -> str:
    tile = _times(f"{match['mn']}x{match['k']}")
    return f"cutlass {_cutlass_operation(match['what'])} {tile} {match['layout']}"


def _triton(match: re.Match[str]) -> str:
    return f"triton {match['kind']}{match['number']} {match['what'].strip('_')}".rstrip()


_LIBRARIES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_NVJET, _nvjet),
    (_XMMA, _xmma),
    (_CUDNN, _cudnn),
    (_CUTLASS3, _cutlass3),
    (_CUTLASS, _cutlass),
    (_TRITON, _triton),
)


def _cutlass_operation(what: str) -> str:
    """`bf16_s16816gemm_relu_bf16` → `bf16 gemm relu`."""
    match = _CUTLASS_OPERATION.match(what)
    if match is None:
        return what
    more = match["more"].removesuffix(match["a"]).strip("_")
    return f"{_cutlass_type(match['a'])} {match['gemm']} {more}".rstrip()


def _cutlass_type(written: str) -> str:
    return _TYPE_CODES.get(written, written)


def _times(tile: str) -> str:
    return tile.replace("x", "×")


def _cpp(full: str) -> str:
    qualified = _without_signature(full)
    path = list(_split(qualified.replace("(anonymous namespace)::", ""), "::"))
    head, arguments = _head(path[-1])
    if head in _ELEMENTWISE and arguments:
        return _torch(head, arguments)
    if path[0] == "cutlass" and head in ("Kernel", "Kernel2", "device_kernel") and arguments:
        inner = short_name(arguments[0])
        return inner if inner.startswith("cutlass") else f"cutlass {inner}"
    if (traits := re.search(r"Flash_\w*kernel_traits<(\d+),", qualified)) and arguments:
        kind = next(_types_in(qualified), "")
        return f"{head.removesuffix('_kernel')}<{', '.join(filter(None, [kind, traits[1]]))}>"
    if head.startswith("ncclDevKernel_"):
        return f"nccl {head.removeprefix('ncclDevKernel_').replace('_', ' ')}"
    if not arguments:
        head = _plain(head)
    library = "cub " if "cub" in path[:-1] else ""
    return library + head + _arguments(head, arguments)


def _torch(head: str, arguments: list[str]) -> str:
    """PyTorch's templates: what they do, and on which type."""
    text = ", ".join(arguments)
    found = [next(filter(None, match.groups())) for match in _OPERATION.finditer(text)]
    operations = [name for name in found if name not in _NO_OPERATION]
    if not operations:
        return f"{_ELEMENTWISE[head]}{_arguments(head, arguments)}"
    operation = operations[-1].removeprefix("direct_").removeprefix("cuda_")
    if operation.istitle():
        operation = operation.lower()
    # A reduction's lambda works on the accumulator; the type of the data comes first.
    kind = next(_types_in(text, lambdas=head != "reduce_kernel"), "")
    return f"{_ELEMENTWISE[head]} {operation}" + (f"<{kind}>" if kind else "")


def _types_in(text: str, lambdas: bool = True) -> Iterator[str]:
    """Element types: those that the innermost lambdas take, then those that templates are made for; the
    types of indices and flags only after all others."""
    taken = [match["types"] for match in _LAMBDA.finditer(text) if lambdas and match["types"]]
    words = [kind.strip(" *&") for types in reversed(taken) for kind in _split(types, ",")]
    words += re.findall(r"[<,] ?([\w:]+(?: \w+)?)(?=[,> ])", text)
    known = [word for word in (w.removesuffix(" const") for w in words) if word in _TYPES]
    for word in sorted(known, key=_INDEX_TYPES.__contains__):
        yield _TYPES[word]


def _arguments(head: str, arguments: list[str]) -> str:
    """Template arguments in short: whole where they are, else the types, else what the first is made of."""
    if not arguments:
        return ""
    simple = [_argument(argument) for argument in arguments]
    whole = ", ".join(simple)
    if len(whole) <= _SHORT_ARGUMENTS:
        return f"<{whole}>"
    types = [_TYPES[a] for a in arguments if a in _TYPES and a not in _INDEX_TYPES]
    types += _types_in(f"<{', '.join(arguments)}>")
    if types:
        return f"<{types[0]}>"
    return f"<{simple[0]}>" if simple[0] != head else ""


def _argument(argument: str) -> str:
    """One template argument without namespaces and what is inside it."""
    if argument in _TYPES:
        return _TYPES[argument]
    if lambdas := list(_LAMBDA.finditer(argument)):
        outer, _ = _head(
            list(_split(_without_signature(argument.partition("::{lambda")[0]), "::"))[-1]
        )
        return f"{outer}#{lambdas[-1]['number']}"
    cast = re.fullmatch(r"\([\w:]+\)(-?\w+)", argument)
    if cast:
        return cast[1]
    name, _ = _head(list(_split(argument.replace("(anonymous namespace)::", ""), "::"))[-1])
    return re.sub(r"(?<=\d)u?l*$", "", name) if name[:1].isdigit() else name


def _without_signature(full: str) -> str:
    """`void ns::f<int>(float*) [clone .x]` → `ns::f<int>`: neither return type nor parameters."""
    words = [word for word in _split(full.partition(" [clone")[0], " ") if word]
    # The name is the first word with a parameter list, which begins outside of any template argument.
    for word in words:
        depth_free = word.replace("(anonymous namespace)::", "")
        at = _top_level(depth_free, "(")
        if at > 0:
            return depth_free[:at]
    return words[-1] if words else full


def _head(component: str) -> tuple[str, list[str]]:
    """`f<int, 4>` → `f`, [`int`, `4`]."""
    at = component.find("<")
    if at <= 0 or not component.endswith(">"):
        return component, []
    inside = component[at + 1 : -1]
    return component[:at], [part.strip() for part in _split(inside, ",")]


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts of `text` between separators that are inside no bracket."""
    start = 0
    for at in _outside(text):
        if at >= start and text.startswith(separator, at):
            yield text[start:at]
            start = at + len(separator)
    yield text[start:]


def _top_level(text: str, character: str) -> int:
    """Where `character` first stands outside of brackets; −1 where it does not."""
    return next((at for at in _outside(text) if text[at] == character), -1)


def _outside(text: str) -> Iterator[int]:
    """Positions outside of brackets, opening ones included. A `>` closes nothing but a `<`."""
    closing = {")": "(", "]": "[", "}": "{"}
    stack: list[str] = []
    for at, character in enumerate(text):
        if not stack:
            yield at
        if character in "(<[{":
            stack.append(character)
        elif character == ">":
            if stack and stack[-1] == "<" and text[at - 1] != "-":
                stack.pop()
        elif character in closing and closing[character] in stack:
            while stack.pop() != closing[character]:
                pass
