"""The pipes of NVIDIA GPUs that have a width, a counter or a name here."""

from roofmon.model.roofline import Pipe

VECTOR_FP64 = Pipe("vector", "fp64")
VECTOR_FP32 = Pipe("vector", "fp32")
VECTOR_FP16 = Pipe("vector", "fp16")
TENSOR_FP64 = Pipe("tensor", "fp64")
TENSOR_TF32 = Pipe("tensor", "tf32")
TENSOR_FP16 = Pipe("tensor", "fp16")
TENSOR_BF16 = Pipe("tensor", "bf16")
TENSOR_FP8 = Pipe("tensor", "fp8")
TENSOR_INT8 = Pipe("tensor", "int8")
