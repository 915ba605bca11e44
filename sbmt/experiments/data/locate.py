"""Data files: the folders where they are kept, how they are found, checked against known checksums, and read."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from sbmt.errors import SbmtError
from sbmt.experiments.files import MOST_BYTES, check_regular

DOWNLOAD_AGAIN = "the file is damaged or a different one: download it again"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors write this at the start of a UTF-8 file."""

MOST_IN_LINE = 1 << 28
"""Bytes of a line: 256 MiB."""

MD5 = {
    # The value that several public loaders of this archive compare with, torchtext's among them.
    "aclImdb_v1.tar.gz": "7c2ac02c03563afcf9b574c7e56c153a",
    # Printed beside the download link on https://www.cs.toronto.edu/~kriz/cifar.html
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
}
"""Known checksums, by the name of the file."""


def data_folder() -> Path:
    """The folder in which a task's original files are looked for: ``$SBMT_DATA``, else ``data`` in the user's cache."""
    return Path(os.environ.get("SBMT_DATA") or _cache() / "data")


def prepared_folder() -> Path:
    """The folder in which prepared examples are kept: ``$SBMT_CACHE``, else ``prepared`` in the user's cache."""
    return Path(os.environ.get("SBMT_CACHE") or _cache() / "prepared")


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("sbmt")


def find_files(path: Path, names: Collection[str], folders: Iterable[str] = ()) -> dict[str, Path]:
    """Looks for files by name in a folder, then in its sub-folders, and takes the first place that holds any of them.

    If ``path`` is one of the files, the others are looked for beside it. Empty if there are none.
    """
    if path.is_file():
        if path.name not in names:
            return {}
        path, folders = path.parent, ()
    for place in (path, *(path / folder for folder in folders)):
        if found := {name: place / name for name in names if (place / name).is_file()}:
            return found
    return {}


def missing(names: Iterable[str], path: Path, found: Collection[str], get: str) -> SbmtError:
    """The error to raise if only the files ``found`` are in ``path``; ``get`` says what to download and unpack."""
    got = f"only {', '.join(sorted(found))}" if found else "none of them" if path.exists() else "no such file or folder"
    do = f"{get}; put it into $SBMT_DATA, or say where it is with --from PATH"
    return SbmtError(f"{', '.join(names)} in {path}", got, do)


def checked_sha256(path: Path) -> str:
    """SHA-256 of a file, after its MD5 has been compared with that of its name in :data:`MD5`, if that is there."""
    check_regular(path)
    with _reading(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if wanted := MD5.get(path.name):
            file.seek(0)
            got = hashlib.file_digest(file, lambda: hashlib.new("md5", usedforsecurity=False)).hexdigest()
            if got != wanted:
                raise SbmtError(f"md5 {wanted} of {path}", got, DOWNLOAD_AGAIN)
    return sha256


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns what goes wrong while a file is read into one line."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SbmtError(f"a whole gzip file {path}", f"damage ({error})", DOWNLOAD_AGAIN) from error
    except OSError as error:
        do = "check its name and permissions"
        raise SbmtError(f"to read {path}", error.strerror or error, do) from error


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedIOBase]:
    """Opens a regular file for reading bytes, and unpacks it if its name ends in ``.gz`` or ``.tgz``."""
    check_regular(path)
    with _reading(path), gzip.open(path) if path.suffix in (".gz", ".tgz") else path.open("rb") as file:
        yield file


def read_unpacked(path: Path) -> bytes:
    """The content of a file, unpacked if it is packed."""
    pieces, n_bytes = [], 0
    with open_binary(path) as file:
        while piece := file.read(1 << 24):
            pieces.append(piece)
            n_bytes += len(piece)
            if n_bytes > MOST_BYTES:
                do = "check where it is from"
                raise SbmtError(f"at most {MOST_BYTES:,} bytes in {path}", "more", do)
    return b"".join(pieces)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, packed or plain, with their ends: only line feeds end them. A byte-order mark is dropped."""
    with open_binary(path) as file:
        line = file.readline(MOST_IN_LINE).removeprefix(BYTE_ORDER_MARK)
        while line:
            if len(line) >= MOST_IN_LINE - len(BYTE_ORDER_MARK):
                raise SbmtError(f"lines of less than {MOST_IN_LINE:,} bytes in {path}", "a longer one", DOWNLOAD_AGAIN)
            yield line
            line = file.readline(MOST_IN_LINE)


def columns_of(line: bytes) -> list[bytes]:
    """The columns of a line, separated by tabs, without the line's end. Quotation marks have no meaning."""
    return line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")


def tar_files(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files of an archive, packed or not; nothing is written anywhere."""
    content = read_unpacked(path)
    seen = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # or tarfile would keep the header of every member in memory
                if not is_wanted(member.name):
                    continue
                name = PurePosixPath(member.name)
                if name in seen or not member.isreg() or member.issparse():
                    raise SbmtError(f"{name} in {path} to be one file", "two, or a link", DOWNLOAD_AGAIN)
                seen.add(name)
                if not 0 <= member.offset_data <= member.offset_data + member.size <= len(content):
                    raise EOFError("it is cut off")
                yield member.name, content[member.offset_data : member.offset_data + member.size]
            # tarfile takes for the end whatever is no header; it must be zeros, as the format demands
            if archive.offset >= len(content) or content[archive.offset :].strip(b"\0"):
                raise EOFError(f"it breaks off after {archive.offset} bytes")
    except SbmtError:
        raise
    except Exception as error:  # headers can lead tarfile to raise almost anything
        got = f"damage ({str(error)[:200]})"
        raise SbmtError(f"a whole tar archive {path}", got, DOWNLOAD_AGAIN) from error
