"""Finds and reads data files."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from platformdirs import user_cache_path

from sbmt.errors import SbmtError
from sbmt.experiments.files import check_regular, tell_os_errors

DOWNLOAD_AGAIN = "check that it is the expected file, and download it again"
MOST_BYTES, MOST_IN_LINE = 1 << 31, 1 << 28  # limits on the bytes of a decompressed file and of a line


def data_folder() -> Path:
    """Returns the folder of the original data files: ``$SBMT_DATA``, or else ``data`` in the user's cache."""
    return Path(os.environ.get("SBMT_DATA") or user_cache_path("sbmt") / "data")


def prepared_folder() -> Path:
    """Returns the folder of the prepared examples: ``$SBMT_CACHE``, or else ``prepared`` in the user's cache."""
    return Path(os.environ.get("SBMT_CACHE") or user_cache_path("sbmt") / "prepared")


def find_files(path: Path, names: Collection[str], folders: Iterable[str] = ()) -> dict[str, Path]:
    """Finds the named files beside ``path`` if it is a file, or else in ``path`` or in one of its ``folders``."""
    if path.is_file():
        if path.name not in names:
            return {}
        path, folders = path.parent, ()
    for place in (path, *(path / folder for folder in folders)):
        if found := {name: place / name for name in names if (place / name).is_file()}:
            return found
    return {}


def missing(names: Iterable[str], path: Path, found: Collection[str], get: str) -> SbmtError:
    """Returns the error for a path that lacks some of the named files; ``get`` tells the user what to download."""
    got = f"only {', '.join(sorted(found))}" if found else "none of them" if path.exists() else "no such file or folder"
    do = f"{get}; put the files in $SBMT_DATA, or give their location with --from PATH"
    return SbmtError(f"{', '.join(names)} in {path}", got, do)


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedIOBase]:
    """Opens a regular file to read bytes, and decompresses ``.gz`` files. A damaged file raises SbmtError."""
    check_regular(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SbmtError(f"the gzip file {path} is damaged ({error}): {DOWNLOAD_AGAIN}") from error
    except OSError as error:
        raise SbmtError(f"cannot read {path} ({error.strerror or error}): check its name and permissions") from error


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file as stored, without decompressing it."""
    check_regular(path)
    with tell_os_errors(f"read {path}", "check its permissions"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a plain or gzip file, with their line feeds but without a byte-order mark."""
    with open_binary(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_IN_LINE + 1), b""), start=1):
            if len(line) > MOST_IN_LINE:
                expected = f"at most {MOST_IN_LINE:,} bytes in {path}, line {number}"
                raise SbmtError(expected, "more", "divide the text into lines")
            if line := line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line:
                yield line


def read_text(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the lines of :func:`read_lines` as UTF-8 text, each preceded by its file and line number."""
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            yield where, line.decode()
        except UnicodeDecodeError as error:
            do = "convert the file to UTF-8, correct the line, or get the file again"
            raise SbmtError(f"UTF-8 text in {where}", repr(line[error.start :][:10]), do) from error


def read_unpacked(path: Path) -> bytes:
    """Reads and decompresses a file of at most :data:`MOST_BYTES` bytes."""
    with open_binary(path) as file:
        if len(content := file.read(MOST_BYTES + 1)) > MOST_BYTES:
            raise SbmtError(f"at most {MOST_BYTES:,} bytes in {path} when decompressed", "more", DOWNLOAD_AGAIN)
    return content


def tar_files(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yields the name and content of each wanted file in a plain or gzip tar archive, without extracting to disk."""
    content = read_unpacked(path)
    seen = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                if member.size < 0:  # tarfile would seek backwards and never finish
                    raise tarfile.ReadError(f"a size of {member.size} bytes")
                if not is_wanted(member.name):
                    continue
                name = PurePosixPath(member.name)
                is_plain = member.isreg() and not member.issparse() and name not in seen
                file = archive.extractfile(member) if is_plain else None
                if file is None:
                    raise SbmtError(f"one plain file {name} in {path}", "two, a link, or a sparse file", DOWNLOAD_AGAIN)
                seen.add(name)
                yield member.name, file.read()
            # tarfile stops at any block that is not a header; the format requires all later blocks to be zero
            if archive.offset >= len(content) or content[archive.offset :].strip(b"\0"):
                raise EOFError(f"it ends after {archive.offset} bytes")
    except SbmtError:
        raise
    except (tarfile.TarError, EOFError, OverflowError, ValueError, RecursionError) as error:
        raise SbmtError(f"the tar archive {path} is damaged ({str(error)[:200]}): {DOWNLOAD_AGAIN}") from error
