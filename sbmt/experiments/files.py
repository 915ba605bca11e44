"""Files: written whole or not at all, and read only if they are regular files of a sensible size."""

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_origin

from torch import Tensor, nn

from sbmt.errors import SbmtError, is_number

LOCK = ".sbmt-lock"  # in a folder while a process writes there, see sbmt.experiments.locks
CHECKSUM = "checksum"  # the entry of a JSON object that verifies the others
MOST_BYTES = 1 << 31  # of a file that is read as a whole
MOST_TENSORS = 1 << 36


@contextmanager
def tell_os_errors(action: str, do: str = "check the folder's free space and permissions") -> Iterator[None]:
    """Turns errors of the operating system within the block into one SbmtError, "cannot" and the action."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:  # the latter for names that no file can have
        raise SbmtError(f"cannot {action} ({getattr(error, 'strerror', None) or error}): {do}") from error


def check_regular(path: Path, do: str = "check its name and permissions") -> None:
    """Raises SbmtError unless a path leads to a regular file; reading a pipe or a device might never finish."""
    with tell_os_errors(f"read {path}", do):
        if not stat.S_ISREG(path.stat().st_mode):
            raise SbmtError(f"{path} to be a regular file", "a folder, a device or a pipe", "name a regular file")


def read_file(path: Path, most: int = MOST_BYTES, do: str = "check its name and permissions") -> bytes:
    """The content of a file of any origin, of at most ``most`` bytes."""
    check_regular(path, do)
    with tell_os_errors(f"read {path}", do):
        if (size := path.stat().st_size) > most:
            raise SbmtError(f"at most {most:,} bytes in {path}", f"{size:,}", "check where it comes from")
        return path.read_bytes()


def check_may_write(folder: Path, marker: str, start: bytes = b"") -> None:
    """Raises SbmtError unless a folder is absent, is empty except for a lock, or was created by the same command.

    In the last case, it contains a file ``marker`` that begins with ``start``.
    """
    with tell_os_errors(f"write into {folder}"):
        others = {path.name for path in folder.iterdir()} - {LOCK} if os.path.lexists(folder) else set()
        if others and not _begins(folder / marker, start):
            expected = f"{folder} to be absent, empty, or created by this command"
            raise SbmtError(expected, f"other files, such as {min(others)}", "choose another folder, or move them away")


def check_may_replace(path: Path, marker: Path, start: bytes) -> None:
    """Raises SbmtError if a file exists, unless a file ``marker`` that begins with ``start`` shows that it is ours."""
    with tell_os_errors(f"write {path}"):
        if path.exists() and not _begins(marker, start):
            raise SbmtError(f"cannot replace {path}, which this command did not write: name another folder")


def _begins(path: Path, start: bytes) -> bool:
    return path.is_file() and path.read_bytes().startswith(start)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees either the old content or the new one.

    A link is followed. An existing file keeps its permissions; a new one has those that the umask leaves.
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


def check_writable(*paths: Path | None) -> None:
    """Checks that files can be written, so that a long computation does not fail at its end; None is skipped."""
    for path in filter(None, paths):
        with tell_os_errors(f"write {path}"):
            parent = next(folder for folder in _target(path).parents if folder.exists())
            tempfile.TemporaryFile(dir=parent).close()


def check_not_replaced(source: Path | None, *outputs: Path | None) -> None:
    """Raises SbmtError if an output, under whatever name, is the file that is read; None is skipped."""
    for path in filter(None, outputs):
        if source and (target := _target(path)).exists() and target.samefile(source):
            raise SbmtError(f"an output file other than the input {source}", path, "choose a different name")


def _target(path: Path) -> Path:
    """The file that a path or link leads to, which need not exist; raises SbmtError if it is not a regular file."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise SbmtError(f"{path} to be a regular file", "a folder, a device or a pipe", "name a regular file")
    return target


def remove_parts(folder: Path) -> None:
    """Removes the unfinished files of killed writers. No other process may be writing in the folder."""
    for part in folder.glob(f".*.{'[0-9a-f]' * 8}.part"):
        part.unlink(missing_ok=True)


def write_json(path: Path, content: Any, *, has_checksum: bool = False) -> None:
    """Writes indented JSON, with a checksum if ``has_checksum``, which :func:`read_json` verifies."""
    if has_checksum:
        content = content | {CHECKSUM: _checksum(content)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode(errors="backslashreplace"))  # of file names that are not Unicode


def read_json(path: Path) -> Any:
    """Reads JSON; raises SbmtError if it is damaged or has a wrong checksum."""
    text = read_file(path, do="name the folder of a run")
    try:
        content = json.loads(text.decode())
        if isinstance(content, dict) and content.get(CHECKSUM, "") not in ("", _checksum(content)):
            raise ValueError("wrong checksum")
        return content
    except (ValueError, RecursionError) as error:
        do = "restore it, or remove its folder and create it again"
        raise SbmtError(f"the JSON in {path} is damaged ({error}): {do}") from error


def check_form(content: Any, form: Any, where: str) -> None:
    """Raises SbmtError unless JSON content has a form: a type, ``list[T]``, ``dict[str, T]``, or a dict of entries.

    An entry ``"name?"`` may be absent, and there may be further ones. A ``float`` is any finite number.
    """
    origin, kinds = get_origin(form), get_args(form)
    if isinstance(form, dict) and isinstance(content, dict):
        for name, kind in form.items():
            if (key := name.removesuffix("?")) in content or key == name:
                check_form(content.get(key), kind, f"{key} of {where}")
    elif origin in (list, tuple) and isinstance(content, list) and (origin is list or len(content) == len(kinds)):
        for item in content:
            check_form(item, kinds[0], where)
    elif origin is dict and isinstance(content, dict):
        for name, item in content.items():
            check_form(item, kinds[1], f"{name} of {where}")
    elif not (is_number(content) and abs(content) <= sys.float_info.max if form is float else type(content) is form):
        words = "entries" if isinstance(form, dict) else getattr(form, "__name__", form)
        raise SbmtError(f"{where} to be of type {words}", repr(content)[:50], "restore the file, or create it again")


def _checksum(content: dict[str, Any]) -> str:
    """SHA-256 of an object without its checksum and the entries that differ between equal runs."""
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

    content = read_file(path, MOST_TENSORS, do="name the folder of a run")
    try:
        return load(content)
    except (SafetensorError, ValueError, TypeError) as error:
        do = "restore it, or remove its folder and train again"
        raise SbmtError(f"the tensors in {path} are damaged ({error}): {do}") from error


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
