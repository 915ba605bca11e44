"""Atomic writes of files, locks on folders, and readers that accept regular files only."""

import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor, nn

from sbmt.errors import SbmtError

LOCK = ".sbmt-lock"  # name of the lock file in a folder to which a process is writing
PATIENCE = 5.0  # seconds to wait for a locked folder, since the workers of a killed study take a moment to exit
CHECKSUM = "checksum"  # key under which a JSON object stores the checksum of its other entries


@contextmanager
def tell_os_errors(action: str, do: str = "check the folder's free space and permissions") -> Iterator[None]:
    """Converts operating-system errors in the block into an SbmtError that begins with "cannot" and the action."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:  # a UnicodeEncodeError means that no file can have this name
        raise SbmtError(f"cannot {action} ({getattr(error, 'strerror', None) or error}): {do}") from error


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Locks a folder against other writers that use this function, and removes files that were left unfinished.

    The operating system releases the lock when the process ends, so a killed run can be resumed at once.
    """
    lock = FileLock(folder / LOCK, timeout=PATIENCE, poll_interval=0.1)
    with tell_os_errors(f"write into {folder}"):
        try:
            lock.acquire()
        except Timeout:
            raise SbmtError(f"another process is writing into {folder}: wait, or choose another folder") from None
    try:
        for part in folder.glob(f".*.{'[0-9a-f]' * 8}.part"):  # left by killed writers; see write_bytes
            part.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()  # a waiting process notices this and creates a new file
        lock.release()


def check_regular(path: Path, do: str = "check its name and permissions") -> None:
    """Raises SbmtError unless the path leads to a regular file, since reading a pipe or a device might never finish."""
    with tell_os_errors(f"read {path}", do):
        if not stat.S_ISREG(path.stat().st_mode):
            raise SbmtError(f"{path} to be a regular file", "a folder, a device or a pipe", "name a regular file")


def read_file(path: Path, do: str = "check its name and permissions") -> bytes:
    """Returns the bytes of a regular file."""
    check_regular(path, do)
    with tell_os_errors(f"read {path}", do):
        return path.read_bytes()


def check_may_write(path: Path, marker: Path, start: bytes = b"") -> None:
    """Raises SbmtError if the path leads to a file, or to a non-empty folder, that this command did not create.

    The command did create it if the file ``marker`` exists and begins with ``start``. A lock file does not count.
    """
    with tell_os_errors(f"write {path}"):
        if path.is_file():
            found = [path.name]
        else:
            found = [file.name for file in path.iterdir() if file.name != LOCK] if os.path.lexists(path) else []
        if found and not (marker.is_file() and marker.read_bytes().startswith(start)):
            expected = f"{path} to be absent, empty, or created by this command"
            raise SbmtError(expected, f"other files, such as {min(found)}", "move them, or choose another folder")


def check_writable(*paths: Path | None) -> None:
    """Checks that the given files can be written, so that a long computation does not fail at its end."""
    for path in filter(None, paths):
        with tell_os_errors(f"write {path}"):
            parent = next(folder for folder in _target(path).parents if folder.exists())
            tempfile.TemporaryFile(dir=parent).close()


def _target(path: Path) -> Path:
    """Resolves the links in a path, and checks that the result is a regular file if it exists."""
    target = Path(os.path.realpath(path))
    if target.exists():
        check_regular(target)
    return target


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically: a reader gets either the old content or the new content.

    Links are followed. An existing file keeps its permissions, and a new file gets those that the umask allows.
    """
    with tell_os_errors(f"write {path}"):
        target = _target(path)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def write_json(path: Path, content: Any, *, has_checksum: bool = False) -> None:
    """Writes indented JSON, and adds a checksum if ``has_checksum`` is true."""
    if has_checksum:
        content = content | {CHECKSUM: _checksum(content)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode(errors="backslashreplace"))  # escapes file names that are not Unicode


def read_json(path: Path, *, has_checksum: bool = False) -> Any:
    """Reads JSON and removes its checksum. Damaged JSON or a wrong or missing checksum raises SbmtError."""
    text = read_file(path, do="name the folder of a run")
    try:
        content = json.loads(text.decode())
        if has_checksum and not (isinstance(content, dict) and content.pop(CHECKSUM, None) == _checksum(content)):
            raise ValueError("wrong checksum")
        return content
    except (ValueError, RecursionError) as error:
        raise SbmtError(f"the JSON in {path} is damaged ({error}): restore it, or delete it and start over") from error


def _checksum(content: dict[str, Any]) -> str:
    """Returns the SHA-256 of an object without its checksum and the entries that vary between identical runs."""
    rest = {name: value for name, value in content.items() if name not in (CHECKSUM, "seconds", "manifest")}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors atomically in the safetensors format."""
    from safetensors.torch import save

    write_bytes(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads tensors in the safetensors format, which contains only numbers, so that nothing is unpickled."""
    from safetensors import SafetensorError
    from safetensors.torch import load  # loads from bytes, since loading by name requires Unicode

    content = read_file(path, do="name the folder of a run")
    try:
        return load(content)
    except (SafetensorError, ValueError, TypeError) as error:
        raise SbmtError(f"the tensors in {path} are damaged ({error}): restore the file, or train again") from error


def load_weights(model: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    """Loads weights into a model. Names, shapes and types must match, and all weights must be finite."""
    do = "restore the file, or train again"
    for name, weight in model.state_dict().items():
        if (found := tensors.get(name, weight)).dtype != weight.dtype:
            raise SbmtError(f"{name} of type {weight.dtype} in {folder}", found.dtype, do)
        if not found.isfinite().all():
            raise SbmtError(f"finite weights in {folder}", f"infinity or NaN in {name}", do)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise SbmtError(f"weights in {folder} that fit its config.json", reason, "train again") from error
