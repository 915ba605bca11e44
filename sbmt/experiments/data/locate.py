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
from sys import maxsize

from sbmt.errors import SbmtError

CHUNK = 1 << 20
DOWNLOAD_AGAIN = "the file is damaged or a different one: download it again"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors write this at the start of a UTF-8 file."""

MOST_UNPACKED = 1 << 35
"""Bytes that a packed file may unpack to: 32 GiB, several times the largest file of these tasks."""

MOST_IN_MEMORY = 1 << 30
"""Bytes of a file that is read as a whole: 1 GiB. The largest one of these tasks has 31 MB."""

KNOWN = {
    # The value that several public loaders of this archive compare with, torchtext's among them.
    "aclImdb_v1.tar.gz": ("md5", "7c2ac02c03563afcf9b574c7e56c153a"),
    # Printed beside the download link on https://www.cs.toronto.edu/~kriz/cifar.html
    "cifar-10-binary.tar.gz": ("md5", "c32a1d4ab5d03f1284b67883e8d87530"),
    # Samples that were laid out for this project. Their checksums were taken from the files themselves, so they show
    # that a copy is complete, not where its content comes from.
    "aclImdb_train_labelled.tar.gz": ("sha256", "19a1c184beadae0415a10360f0d262286de157362380301e34d6c525efbbedb2"),
    "aclImdb_test_labelled.tar.gz": ("sha256", "ee99628bc0f19c54b189ec99b71ecbe59e33fa78aece26585849fcf65ce3a15d"),
    "imdb_film_pairs.train.tsv.gz": ("sha256", "a92e5b9b162d96e3093fd9726debf94956a848808e9b3755e0ea3fe923fba317"),
    "imdb_film_pairs.eval.tsv.gz": ("sha256", "b924638f36e3b9d748ad06fb7d66a3812bf635cec3121c833d654e9c83d3a750"),
    "imdb_film_pairs.test.tsv.gz": ("sha256", "80316991bcbf280bf460ca1cc04000379814521d5243c10ea20f96be3f5d8e35"),
    "cifar10_grey_train.bin.gz": ("sha256", "cce6d8c9ef5662c13178d90368787ea287ad963c104c0d5f65c488eee4570b93"),
    "cifar10_grey_test.bin.gz": ("sha256", "035f77788d485be742f277e3f892fdbc6967c6b7aca4356b3d54197ea4e384ec"),
    # Only the samples of GLUE: everybody packs its own tables in their own way, so those have no known checksum.
    "MNLI/train_subset.tsv.gz": ("sha256", "1e5d399b57e39df346adc9e1531087441532a719d8ff64e5308ff824f131212a"),
    "MNLI/dev_subset.tsv.gz": ("sha256", "82f3e3b595f282020ae2b49f948e3d8aca3f5469263aca9d4965084a1b979d57"),
    "QNLI/train_subset.tsv.gz": ("sha256", "9ce136c2c0faf273c6351ae7380824a2e555e1e39dbb020a5f39c96a33f2d9e6"),
    "QNLI/dev_subset.tsv.gz": ("sha256", "89493800cf465108f697728eeae5475296fd2e1ccd6776d3fade1cbd7d259162"),
    "QQP/train_subset.tsv.gz": ("sha256", "07cc0838d0c67fc41d8026cfcae4b94b0a8004fb63cf6dddc68724106f3525dd"),
    "QQP/dev_subset.tsv.gz": ("sha256", "5f9ad43477c344d67d128ed46b5c84d54b0ffc29b218a282ff49a20be5627724"),
}
"""The checksum of a file, by its name; tables whose names several tasks share have their folder before it."""


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
    return SbmtError(
        f"{', '.join(names)} in {path}", got, f"{get}; put it into $SBMT_DATA, or say where it is with --from PATH"
    )


def cannot_read(path: Path, error: OSError) -> SbmtError:
    """The error to raise if the system cannot read a file."""
    return SbmtError(f"to read {path}", error.strerror or error, "check its name and permissions")


def checked_sha256(path: Path, name: str = "") -> str:
    """SHA-256 of a file, after it has been compared with the checksum of its name in :data:`KNOWN`, if that is there.

    Raises:
        SbmtError: If the checksum differs, or the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            algorithm, wanted = KNOWN.get(name or path.name, ("sha256", sha256))
            file.seek(0)
            got = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise cannot_read(path, error) from error
    if got != wanted:
        raise SbmtError(f"{algorithm} {wanted} of {path}", got, DOWNLOAD_AGAIN)
    return sha256


def read_whole(path: Path) -> bytes:
    """The content of a small file.

    Raises:
        SbmtError: If it cannot be read, or is a folder, a device or a pipe, which might never end.
    """
    if path.exists() and not path.is_file():
        raise SbmtError(f"a regular file {path}", "a folder, a device or a pipe", "remove it")
    try:
        return path.read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from error


class _Unpacked(gzip.GzipFile):
    """A gzip file that must not unpack to more than :data:`MOST_UNPACKED` bytes."""

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(CHUNK if size is None or size < 0 else size)
        if self.tell() > MOST_UNPACKED:
            do = "check where it is from; if it is what you want, unpack it: plain files may have any size"
            raise SbmtError(f"{self.name} to unpack to at most {MOST_UNPACKED:,} bytes", "more", do)
        return content


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedIOBase]:
    """Opens a file for reading bytes, and unpacks it if its name ends in ``.gz`` or ``.tgz``.

    Raises:
        SbmtError: If the file cannot be read. Also from within the ``with`` block, if a packed file is cut off or
            damaged, or has more than :data:`MOST_UNPACKED` bytes.
    """
    try:
        is_packed = path.suffix in (".gz", ".tgz")
        with io.BufferedReader(_Unpacked(path), CHUNK) if is_packed else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SbmtError(f"a whole gzip file {path}", f"damage ({error})", DOWNLOAD_AGAIN) from error
    except OSError as error:
        raise cannot_read(path, error) from error


def read_lines(path: Path, start: int = 0, stop: int = maxsize) -> Iterator[tuple[int, bytes]]:
    """Offset and content of the lines that start in the bytes ``start`` … ``stop − 1`` of a file, packed or plain.

    Only a line feed ends a line. Lines keep their ends; a byte-order mark at the start of the file is dropped.
    """
    with open_binary(path) as file:
        if start:
            file.seek(start - 1)
            start += len(file.readline()) - 1  # skip a line that began earlier
        while start < stop and (line := file.readline()):
            yield start, line.removeprefix(BYTE_ORDER_MARK) if start == 0 else line
            start += len(line)


def columns_of(line: bytes) -> list[bytes]:
    """The columns of a line, separated by tabs, without the line's end. Quotation marks have no meaning."""
    return line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")


def line_number(path: Path, offset: int) -> int:
    """The number, from 1, of the line to which a byte of a file belongs."""
    number = 1
    with open_binary(path) as file:
        while offset and (content := file.read(min(offset, CHUNK))):
            number += content.count(b"\n")
            offset -= len(content)
    return number


class _Watched:
    """Passes reads on, and knows how many bytes were read and where the last of them that is not zero ends."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self.file, self.n_bytes, self.end = file, 0, 0

    def read(self, size: int) -> bytes:
        content = self.file.read(size)
        if kept := len(content.rstrip(b"\0")):
            self.end = self.n_bytes + kept
        self.n_bytes += len(content)
        return content


def tar_files(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files of an archive, packed or not; nothing is written anywhere.

    ``tarfile`` alone takes an archive for complete that stops between two files, or goes on with something that is no
    file. So the rest is read as well and must be zeros, as the format demands.

    Raises:
        SbmtError: If it is no tar archive, or is damaged or cut off; or if a wanted member is no ordinary file, occurs
            twice, or has more than :data:`MOST_IN_MEMORY` bytes.
    """
    seen = set()
    with open_binary(path) as file:
        watched = _Watched(file)
        try:
            with tarfile.open(fileobj=watched, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    archive.members = []  # or tarfile would keep the header of every member in memory
                    if not is_wanted(member.name):
                        continue
                    name = PurePosixPath(member.name)
                    if name in seen:
                        raise SbmtError(f"{name} once in {path}", "two of it", DOWNLOAD_AGAIN)
                    seen.add(name)
                    content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                    if content is None:
                        raise SbmtError(f"{member.name} in {path} to be a file", "a link or the like", DOWNLOAD_AGAIN)
                    if member.size > MOST_IN_MEMORY:
                        expected = f"{member.name} in {path} to have at most {MOST_IN_MEMORY:,} bytes"
                        raise SbmtError(expected, f"{member.size:,}", DOWNLOAD_AGAIN)
                    yield member.name, content.read()
        except tarfile.TarError as error:
            raise SbmtError(f"a tar archive {path}", f"something else ({error})", DOWNLOAD_AGAIN) from error
        while watched.read(CHUNK):
            pass
        end = archive.offset  # after the last member
        if watched.end > end or watched.n_bytes == end:
            raise SbmtError(f"a whole tar archive {path}", f"one that breaks off after {end} bytes", DOWNLOAD_AGAIN)
