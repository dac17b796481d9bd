"""Where everything lives: bundled data, configuration, caches, sockets, the log; and private files.

All paths of the program come from here, so that overrides, XDG variables and permissions are handled
once. Files are 0600 in directories of 0700, symbolic links are not followed, and nothing read back is
trusted beyond a size.
"""

import os
import stat
import sys
import tempfile
from pathlib import Path

import platformdirs

from roofmon.errors import RoofmonError

_PACKAGE = Path(__file__).resolve().parent


def probes_dir(override: Path | None = None) -> Path:
    """The bundled calibration probes; `override`, else $ROOFMON_PROBES, replaces them."""
    return _bundled("probes", override, "ROOFMON_PROBES")


def themes_dir(override: Path | None = None) -> Path:
    """The bundled themes; `override`, else $ROOFMON_THEMES, replaces them."""
    return _bundled("themes", override, "ROOFMON_THEMES")


def _bundled(name: str, override: Path | None, variable: str) -> Path:
    chosen = override or (Path(os.environ[variable]) if os.environ.get(variable) else None)
    if chosen is not None:
        if not chosen.is_dir():
            raise RoofmonError(f"{chosen} is not a directory", f"correct or unset {variable}")
        return chosen
    # The checkout comes before the package data: an editable install leaves a stale copy of it there.
    root = _PACKAGE.parent
    if (root / "pyproject.toml").is_file() and (root / name).is_dir():
        return root / name
    return _PACKAGE / "_bundled" / name


def python_module(name: str) -> tuple[str, ...]:
    """The beginning of a command that runs a module of ours with this interpreter.

    -P keeps the current directory off the path: a numpy.py or json.py of whoever starts us there must not
    end up in our children.
    """
    return sys.executable, "-P", "-m", name


def config_dir() -> Path:
    """Settings, the user's own probes and themes: $XDG_CONFIG_HOME/roofmon."""
    return platformdirs.user_config_path("roofmon", appauthor=False)


def cache_dir() -> Path:
    """What can be measured again: $XDG_CACHE_HOME/roofmon."""
    return platformdirs.user_cache_path("roofmon", appauthor=False)


def data_dir() -> Path:
    """Snapshots and recordings: $XDG_DATA_HOME/roofmon."""
    return platformdirs.user_data_path("roofmon", appauthor=False)


def log_path() -> Path | None:
    """The log file in $XDG_STATE_HOME/roofmon, its directory made; None where that is impossible."""
    directory = platformdirs.user_state_path("roofmon", appauthor=False)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return directory / "roofmon.log" if os.access(directory, os.W_OK) else None


def output_dir() -> Path:
    """Where the output of programs under `roofmon run` is kept, made (0700): in the state directory."""
    directory = platformdirs.user_state_path("roofmon", appauthor=False) / "output"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def runtime_dir() -> Path:
    """The directory of sockets and locks: $XDG_RUNTIME_DIR/roofmon, else roofmon-UID under tmp.

    It is made when missing. Raises RoofmonError when it is a link, someone else's, or open to others:
    whoever can write there could pose as a traced program.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and Path(base).is_dir() and os.access(base, os.W_OK):
        path = Path(base) / "roofmon"
    else:
        path = Path(tempfile.gettempdir()) / f"roofmon-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise RoofmonError(
            f"the runtime directory {path} cannot be used: {error.strerror}",
            "set XDG_RUNTIME_DIR to a directory of yours",
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise RoofmonError(
            f"the runtime directory {path} is not a private directory of this user",
            f"remove it, or: chmod 700 {path}",
        )
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write `data` to `path` whole or not at all, mode 0600, replacing a link instead of following it.

    Missing directories are made (0700). Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    temporary.unlink(missing_ok=True)  # of an earlier process with our number that was killed
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes, links not followed. Raises OSError."""
    # O_NONBLOCK: opening a pipe that someone put there must not hang.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"{path} is larger than {limit} bytes")
    return data
