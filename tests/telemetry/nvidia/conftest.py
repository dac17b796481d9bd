from nvml_double import nvml, nvml_libraries
from nvml_worker import start

__all__ = ["nvml", "nvml_libraries", "start"]
