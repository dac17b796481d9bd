from nvml_double import nvml, nvml_libraries

__all__ = ["nvml", "nvml_libraries"]
