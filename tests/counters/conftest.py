"""Makes the helpers beside the tests importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from nvml_double import nvml, nvml_libraries

__all__ = ["nvml", "nvml_libraries"]
