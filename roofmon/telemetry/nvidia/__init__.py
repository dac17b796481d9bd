"""NVIDIA GPUs through NVML: the one place that imports `pynvml` (the package nvidia-ml-py)."""
