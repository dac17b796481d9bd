"""What is set for a program that is to be traced."""

import os
from collections.abc import Mapping
from pathlib import Path

from roofmon.errors import ExitCode, RoofmonError
from roofmon.resources import data_dir, write_private
from roofmon.tracing.inject.build import library_path

INJECTION = "CUDA_INJECTION64_PATH"
_PYTHONPATH = "PYTHONPATH"
_REGION = Path(__file__).resolve().parent.parent / "region.py"


def tracing_variables(environment: Mapping[str, str], *, region: bool) -> dict[str, str]:
    """The variables to add to `environment`; compiles the library where that has not been done.

    `region` also makes `from region import region` work in any Python. Raises RoofmonError where the
    library cannot be made, or where another tool already has its own injected.
    """
    library = library_path()
    present = environment.get(INJECTION, "")
    if present and not present.endswith(f"/{library.name}"):
        raise RoofmonError(
            f"{INJECTION} is set to {present} already: another tool traces what starts here",
            f"unset {INJECTION} to have roofmon trace it",
            ExitCode.USAGE,
        )
    variables = {INJECTION: str(library)}
    if region:
        paths = [path for path in environment.get(_PYTHONPATH, "").split(os.pathsep) if path]
        ours = str(_region_folder())
        # At the end: whatever else is there comes first.
        variables[_PYTHONPATH] = os.pathsep.join([*(p for p in paths if p != ours), ours])
    return variables


def _region_folder() -> Path:
    """A folder that holds region.py alone: roofmon's own would bring in all its environment."""
    folder = data_dir() / "python"
    copy = folder / _REGION.name
    source = _REGION.read_bytes()
    try:
        if not copy.is_file() or copy.read_bytes() != source:
            write_private(copy, source)
    except OSError as error:
        what = f"region.py cannot be put into {folder}: {error.strerror}"
        raise RoofmonError(what, "set XDG_DATA_HOME to a directory of yours") from None
    return folder
