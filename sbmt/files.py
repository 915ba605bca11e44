"""Files that are written whole or not at all."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from sbmt.errors import SbmtError


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old content or the new one, never half of it.

    Raises:
        SbmtError: If the folder cannot be made or written (read-only, full).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SbmtError(f"to write {path}", error.strerror or error, "choose a folder with room and rights") from error


def write_json(path: Path, content: Any) -> None:
    """Writes JSON, indented, whole or not at all."""
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads JSON.

    Raises:
        SbmtError: If the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SbmtError(f"a file {path}", error.strerror or error, "name the folder of a run") from error
    except ValueError as error:
        raise SbmtError(f"JSON in {path}", f"damage ({error})", "train again, or restore the file") from error


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors in the safetensors format, whole or not at all."""
    write_bytes(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads tensors. Nothing is unpickled: the format holds numbers only.

    Raises:
        SbmtError: If the file is missing or damaged.
    """
    if not path.is_file():
        raise SbmtError(f"a file {path}", "none", "name the folder of a run")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise SbmtError(f"tensors in {path}", f"damage ({error})", "train again, or restore the file") from error
