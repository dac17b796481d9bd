"""Makes `builders` importable from every test file, and lets generated tests take their time."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A deadline for each example would measure how busy the machine is.
settings.register_profile("roofmon", deadline=None)
settings.load_profile("roofmon")
