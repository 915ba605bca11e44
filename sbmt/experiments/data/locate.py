"""Finds the files of public data sets, checks them against known checksums, and reads them as streams."""

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from sbmt.errors import SbmtError

CHUNK = 1 << 20
DOWNLOAD_AGAIN = "the file is damaged or another one: download it again"

KNOWN = {
    # The value that several public loaders of this archive compare with, torchtext's among them.
    "aclImdb_v1.tar.gz": ("md5", "7c2ac02c03563afcf9b574c7e56c153a"),
    # Printed beside the download on https://www.cs.toronto.edu/~kriz/cifar.html
    "cifar-10-binary.tar.gz": ("md5", "c32a1d4ab5d03f1284b67883e8d87530"),
    # Samples laid out for this project. The values were taken from the files themselves: they say that a copy is
    # whole, not where its content is from.
    "aclImdb_train_labelled.tar.gz": ("sha256", "19a1c184beadae0415a10360f0d262286de157362380301e34d6c525efbbedb2"),
    "aclImdb_test_labelled.tar.gz": ("sha256", "ee99628bc0f19c54b189ec99b71ecbe59e33fa78aece26585849fcf65ce3a15d"),
    "imdb_film_pairs.train.tsv.gz": ("sha256", "a92e5b9b162d96e3093fd9726debf94956a848808e9b3755e0ea3fe923fba317"),
    "imdb_film_pairs.eval.tsv.gz": ("sha256", "b924638f36e3b9d748ad06fb7d66a3812bf635cec3121c833d654e9c83d3a750"),
    "imdb_film_pairs.test.tsv.gz": ("sha256", "80316991bcbf280bf460ca1cc04000379814521d5243c10ea20f96be3f5d8e35"),
    "cifar10_grey_train.bin.gz": ("sha256", "cce6d8c9ef5662c13178d90368787ea287ad963c104c0d5f65c488eee4570b93"),
    "cifar10_grey_test.bin.gz": ("sha256", "035f77788d485be742f277e3f892fdbc6967c6b7aca4356b3d54197ea4e384ec"),
    # Of GLUE only samples: its own tables, packed by whoever has them, may have any checksum.
    "MNLI/train_subset.tsv.gz": ("sha256", "1e5d399b57e39df346adc9e1531087441532a719d8ff64e5308ff824f131212a"),
    "MNLI/dev_subset.tsv.gz": ("sha256", "82f3e3b595f282020ae2b49f948e3d8aca3f5469263aca9d4965084a1b979d57"),
    "QNLI/train_subset.tsv.gz": ("sha256", "9ce136c2c0faf273c6351ae7380824a2e555e1e39dbb020a5f39c96a33f2d9e6"),
    "QNLI/dev_subset.tsv.gz": ("sha256", "89493800cf465108f697728eeae5475296fd2e1ccd6776d3fade1cbd7d259162"),
    "QQP/train_subset.tsv.gz": ("sha256", "07cc0838d0c67fc41d8026cfcae4b94b0a8004fb63cf6dddc68724106f3525dd"),
    "QQP/dev_subset.tsv.gz": ("sha256", "5f9ad43477c344d67d128ed46b5c84d54b0ffc29b218a282ff49a20be5627724"),
}
"""By file name, or by a name that the reader gives where tables of several tasks are called the same: which checksum a
file must have."""


def data_folder() -> Path:
    """Where a task's original files are looked for: ``$SBMT_DATA``, else ``data`` in the user's cache."""
    return Path(os.environ.get("SBMT_DATA") or _cache() / "data")


def prepared_folder() -> Path:
    """Where prepared examples are kept: ``$SBMT_CACHE``, else ``prepared`` in the user's cache."""
    return Path(os.environ.get("SBMT_CACHE") or _cache() / "prepared")


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("sbmt")


def find_files(path: Path, names: Collection[str], folders: Iterable[str] = ()) -> dict[str, Path]:
    """Looks for files by name in a folder, then in sub-folders; the first place that holds any of them is taken.

    Args:
        path: A folder, or one of the files: then the others are looked for beside it.
        names: Of the files.
        folders: Sub-folders of ``path``, in the order in which they are tried.

    Returns:
        The files found, by name, all from one place. Empty where there is none.
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
    """The error to raise where files are not there: what to get and where to put it.

    Args:
        names: Of all files that are needed.
        path: Where they were looked for.
        found: What is there.
        get: What to download and unpack, in words, with its address.
    """
    got = f"only {', '.join(sorted(found))}" if found else "none of it" if path.exists() else "no such file or folder"
    return SbmtError(
        f"{', '.join(names)} in {path}", got, f"{get}; put it into $SBMT_DATA, or say where it is with --from PATH"
    )


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def checked_sha256(path: Path, name: str = "") -> str:
    """SHA-256 of a file, once its content was found to be what its name promises.

    A file whose name is not in :data:`KNOWN` passes unchecked. Reads the file once, or twice where the known
    checksum is an MD5.

    Args:
        path: The file.
        name: What it is called in :data:`KNOWN`; its file name if left out.

    Raises:
        SbmtError: If the checksum is another one, or the file cannot be read.
    """
    try:
        sha256 = _digest(path, "sha256")
        algorithm, wanted = KNOWN.get(name or path.name, ("sha256", sha256))
        got = sha256 if algorithm == "sha256" else _digest(path, algorithm)
    except OSError as error:
        raise SbmtError(f"to read {path}", error.strerror or error, "check its name and rights") from error
    if got != wanted:
        raise SbmtError(f"{algorithm} {wanted} of {path}", got, DOWNLOAD_AGAIN)
    return sha256


@contextmanager
def open_binary(path: Path) -> Iterator[BufferedIOBase]:
    """Opens a file for reading bytes, unpacking it where its name ends in ``.gz`` or ``.tgz``.

    Raises:
        SbmtError: If the file is not there; also from within the ``with`` block, once reading meets the place where a
            packed file is cut off or damaged.
    """
    try:
        with gzip.open(path, "rb") if path.suffix in (".gz", ".tgz") else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SbmtError(f"a whole gzip file {path}", f"damage ({error})", DOWNLOAD_AGAIN) from error
    except OSError as error:
        raise SbmtError(f"to read {path}", error.strerror or error, "check its name and rights") from error


class _Watched:
    """Passes reads on; knows how many bytes came and after which of them only zeros did."""

    def __init__(self, file: BufferedIOBase) -> None:
        self.file, self.n_bytes, self.end = file, 0, 0

    def read(self, size: int) -> bytes:
        content = self.file.read(size)
        if kept := len(content.rstrip(b"\0")):
            self.end = self.n_bytes + kept
        self.n_bytes += len(content)
        return content


def tar_files(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an archive's files, read once from start to end; nothing is written anywhere.

    ``tarfile`` alone takes an archive that stops between two files, or goes on with what is no file, for a whole one.
    So the rest is read as well and must be zeros, as the format has it.

    Args:
        path: A tar archive, packed or not.
        is_wanted: Says by a member's name whether to read it.

    Raises:
        SbmtError: If it is no tar archive, damaged, cut off, or a wanted member is no ordinary file.
    """
    with open_binary(path) as file:
        watched = _Watched(file)
        try:
            with tarfile.open(fileobj=watched, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    if not is_wanted(member.name):
                        continue
                    content = archive.extractfile(member) if member.isreg() else None
                    if content is None:
                        raise SbmtError(f"{member.name} in {path} to be a file", "a link or the like", DOWNLOAD_AGAIN)
                    yield member.name, content.read()
        except tarfile.TarError as error:
            raise SbmtError(f"a tar archive {path}", f"something else ({error})", DOWNLOAD_AGAIN) from error
        while watched.read(CHUNK):
            pass
        end = archive.offset  # after the last member
        if watched.end > end or watched.n_bytes == end:
            raise SbmtError(f"a whole tar archive {path}", f"one broken off after {end} bytes", DOWNLOAD_AGAIN)
