"""Files and folders: written whole or not at all, by one process at a time, and read only if they are regular files."""

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

LOCK = ".sbmt-lock"  # in a folder while a process writes there
PATIENCE = 5.0  # seconds to wait for a folder, since the workers of a killed study take a moment to end
CHECKSUM = "checksum"  # the entry of a JSON object that verifies the others


@contextmanager
def tell_os_errors(action: str, do: str = "check the folder's free space and permissions") -> Iterator[None]:
    """Turns an error of the operating system within the block into an SbmtError that begins "cannot" and the action."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:  # the latter for names that no file can have
        raise SbmtError(f"cannot {action} ({getattr(error, 'strerror', None) or error}): {do}") from error


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes and threads that use this function, and removes unfinished files there.

    The system releases the lock when the process ends, so that a killed run can be resumed at once.
    """
    lock = FileLock(folder / LOCK, timeout=PATIENCE, poll_interval=0.1)
    with tell_os_errors(f"write into {folder}"):
        try:
            lock.acquire()
        except Timeout:
            raise SbmtError(f"another process is writing into {folder}: wait, or choose another folder") from None
    try:
        for part in folder.glob(f".*.{'[0-9a-f]' * 8}.part"):  # of killed writers, see write_bytes
            part.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()  # a waiting process notices this and creates a new file
        lock.release()


def check_regular(path: Path, do: str = "check its name and permissions") -> None:
    """Raises SbmtError unless a path leads to a regular file; reading a pipe or a device might never finish."""
    with tell_os_errors(f"read {path}", do):
        if not stat.S_ISREG(path.stat().st_mode):
            raise SbmtError(f"{path} to be a regular file", "a folder, a device or a pipe", "name a regular file")


def read_file(path: Path, do: str = "check its name and permissions") -> bytes:
    """Reads a regular file."""
    check_regular(path, do)
    with tell_os_errors(f"read {path}", do):
        return path.read_bytes()


def check_may_write(path: Path, marker: Path, start: bytes = b"") -> None:
    """Raises SbmtError if a file exists, or a folder that contains more than a lock, unless this command wrote it.

    A file ``marker`` that begins with ``start`` shows that it did.
    """
    with tell_os_errors(f"write {path}"):
        if path.is_file():
            found = [path.name]
        else:
            found = [file.name for file in path.iterdir() if file.name != LOCK] if os.path.lexists(path) else []
        if found and not (marker.is_file() and marker.read_bytes().startswith(start)):
            expected = f"{path} to be absent, empty, or created by this command"
            raise SbmtError(expected, f"other files, such as {min(found)}", "choose another folder, or move them away")


def check_writable(*paths: Path | None) -> None:
    """Checks that files can be written, so that a long computation does not fail at its end; None is skipped."""
    for path in filter(None, paths):
        with tell_os_errors(f"write {path}"):
            parent = next(folder for folder in _target(path).parents if folder.exists())
            tempfile.TemporaryFile(dir=parent).close()


def _target(path: Path) -> Path:
    """Returns the file that a path or link leads to, which need not exist, after a check that it is a regular file."""
    target = Path(os.path.realpath(path))
    if target.exists():
        check_regular(target)
    return target


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees either the old content or the new one.

    Links are followed. An existing file keeps its permissions; a new file gets the default permissions under the umask.
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
    """Writes indented JSON, with a checksum if ``has_checksum``."""
    if has_checksum:
        content = content | {CHECKSUM: _checksum(content)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode(errors="backslashreplace"))  # of file names that are not Unicode


def read_json(path: Path, *, has_checksum: bool = False) -> Any:
    """Reads JSON without its checksum; raises SbmtError if it is damaged, or the checksum wrong or missing."""
    text = read_file(path, do="name the folder of a run")
    try:
        content = json.loads(text.decode())
        if has_checksum and not (isinstance(content, dict) and content.pop(CHECKSUM, None) == _checksum(content)):
            raise ValueError("wrong checksum")
        return content
    except (ValueError, RecursionError) as error:
        raise SbmtError(f"the JSON in {path} is damaged ({error}): restore it, or remove it and start over") from error


def _checksum(content: dict[str, Any]) -> str:
    """Returns the SHA-256 of an object without its checksum and the entries that differ between equal runs."""
    rest = {name: value for name, value in content.items() if name not in (CHECKSUM, "seconds", "manifest")}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors in the safetensors format, whole or not at all."""
    from safetensors.torch import save

    write_bytes(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads tensors. Nothing is unpickled, since the format contains only numbers."""
    from safetensors import SafetensorError
    from safetensors.torch import load  # from bytes, since reading by name would require Unicode

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
