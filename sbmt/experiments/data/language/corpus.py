"""A corpus for masked language modelling: text of any size, as one stream of tokens per split."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.language.tokenizer import Tokenizer, train_tokenizer
from sbmt.experiments.data.locate import CHUNK, checked_sha256, line_number, missing, open_binary, read_lines
from sbmt.experiments.data.source import SPLITS, Examples, Shard, Source, by_shard

VOCABULARY = 50265
"""The size of RoBERTa's vocabulary."""

REDUCED_VOCABULARY = 2048
"""The size of a vocabulary for a few megabytes of text and a small network."""

EVERY = 20
"""One part in this many is held out for each split for which there is no file."""

SUFFIXES = (".txt", ".txt.gz")
FOLDER = "lm"
GET = "put text in UTF-8 there, in one file or several named *.txt or *.txt.gz"
_WORDS = {"valid": "dev", "validation": "dev", "val": "dev", "dev": "dev", "test": "test"}


@dataclass(frozen=True)
class Part:
    """Whole lines of a file, packed or plain: the bytes ``start`` … ``stop − 1`` of its unpacked content."""

    path: Path
    start: int
    stop: int

    def text(self) -> str:
        """The lines with their ends, unchanged. A byte-order mark at the start of a file is dropped.

        Raises:
            SbmtError: If it cannot be read, or is not UTF-8.
        """
        content = b"".join(line for _, line in read_lines(self.path, self.start, self.stop))
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = line_number(self.path, self.start) + content[: error.start].count(b"\n")
            where = f"text in UTF-8 in {self.path}, line {line}"
            got = repr(content[error.start : error.end + 9])
            raise SbmtError(where, got, "convert the file, or correct that line") from error


def _files(path: Path) -> list[Path]:
    """The text files in a folder, by name."""
    if path.is_file():
        if not path.name.endswith(SUFFIXES):
            raise SbmtError("a file named *.txt or *.txt.gz", path, "rename it if it is text in UTF-8")
        return [path]
    for folder in (path, path / FOLDER):
        if folder.is_dir():
            files = sorted(
                f for f in folder.iterdir() if f.name.endswith(SUFFIXES) and f.is_file() and f.name[0] != "."
            )
            names = {f.name for f in files}
            if twice := [name for name in sorted(names) if f"{name}.gz" in names]:
                raise SbmtError(f"{twice[0]} once in {folder}", "a plain and a packed one", "remove one of the two")
            if files:
                return files
    raise missing(["*.txt or *.txt.gz"], path, {}, GET)


def _split_of(path: Path) -> str:
    """The split that a file's name contains; empty if it contains none."""
    words = re.split("[^a-z]+", path.name.lower())
    return next((_WORDS[word] for word in words if word in _WORDS), "")


def _n_bytes(path: Path) -> int:
    """Size of the unpacked file."""
    n_bytes = 0
    with open_binary(path) as file:
        while content := file.read(CHUNK):
            n_bytes += len(content)
    return n_bytes


def _cut(path: Path, n_bytes: int, size: int) -> Iterator[Part]:
    """Parts of at least ``size`` bytes, each up to the end of a line."""
    start = 0
    with open_binary(path) as file:
        while start < n_bytes:
            file.seek(min(start + size, n_bytes) - 1)
            file.readline()
            stop = file.tell()
            yield Part(path, start, stop)
            start = stop


def _cut_all(sizes: dict[Path, int], shard_bytes: int) -> list[Part]:
    return [part for path, n_bytes in sizes.items() for part in _cut(path, n_bytes, shard_bytes)]


def _parts(files: list[Path], shard_bytes: int) -> dict[str, list[Part]]:
    """The parts of every split."""
    named: dict[str, dict[Path, int]] = {split: {} for split in ("", *SPLITS)}
    for path in files:
        named[_split_of(path)][path] = _n_bytes(path)
    others = named.pop("")
    parts = {split: _cut_all(sizes, shard_bytes) for split, sizes in named.items()}
    if held_out := [split for split in ("dev", "test") if not parts[split]]:
        shard_bytes = min(shard_bytes, -(-sum(others.values()) // EVERY))
    rest = _cut_all(others, shard_bytes)
    while len(rest) <= len(held_out) and shard_bytes > 1:  # a single line takes most of the text
        shard_bytes //= 2
        rest = _cut_all(others, shard_bytes)
    if len(rest) <= len(held_out):
        needed = f"text of {len(held_out) + 1} lines or more for {' and '.join(['train', *held_out])}"
        names = ", ".join(path.name for path in files)
        do = f"{GET}; a file with dev or test in its name is held out as a whole"
        raise SbmtError(f"{needed} in {names}", len(rest), do)
    for number, part in enumerate(rest):
        place = number % min(EVERY, len(rest))
        parts[held_out[place - 1] if 1 <= place <= len(held_out) else "train"].append(part)
    return parts


def _read(part: Part, tokenizer: Tokenizer) -> Examples:
    ids = tokenizer.encode_lines(part.text())
    return Examples(ids, np.array([[len(ids)]]), np.zeros(1, np.int64))


def corpus_source(
    path: Path | str,
    *,
    tokenizer: Tokenizer | None = None,
    vocab_size: int = VOCABULARY,
    name: str = "corpus",
    shard_bytes: int = 1 << 24,
) -> Source:
    """Text as token ids. Each split is one stream: decoded, it gives back the text of its files, one after the other.

    Every line is encoded separately, together with its line feed, so that the stream does not depend on how the text
    is divided into shards. A file is for dev if its name contains the word ``dev``, ``val``, ``valid`` or
    ``validation``, and for test if it contains ``test``. If there is no file for one of these two, every 20th part of
    the other files is held out for it.

    Args:
        path: A file ``*.txt`` or ``*.txt.gz`` in UTF-8, a folder of such files, or a folder that has them in a folder
            ``lm``.
        tokenizer: Cuts lines into tokens. None trains one on the text of train, at once.
        vocab_size: Number of tokens of a tokeniser that is trained.
        name: Name of the prepared examples.
        shard_bytes: Size of the text that is in memory at a time; a longer line is in memory as a whole.

    Returns:
        A source with one example per part, whose symbols are ids of the ``tokenizer.json`` beside the examples. The
        labels have no meaning.

    Raises:
        SbmtError: If there is no text, there are too few lines to divide, or a file is there twice, plain and packed.
            From a shard, and from the training of a tokeniser, if a file is damaged or not UTF-8, with the line.

    Cost: files are read three times before shards are made, and once more to train a tokeniser. For each part of a
    packed file, everything before it is unpacked: unpack a large one beforehand.
    """
    check_sizes(shard_bytes=shard_bytes)
    files = _files(Path(path))
    sums = {file.name: checked_sha256(file) for file in files}
    parts = _parts(files, shard_bytes)
    is_trained = tokenizer is None
    if tokenizer is None:
        tokenizer = train_tokenizer((part.text() for part in parts["train"]), vocab_size)
    return Source(
        name=name,
        task="mlm",
        origin="own",
        class_names=("text",),
        vocab_size=tokenizer.vocab_size,
        first_id=0,
        settings={
            "files": sums,
            "tokenizer": tokenizer.sha256,
            "is_tokenizer_trained": is_trained,
            "shard_bytes": shard_bytes,
            "bytes": {split: sum(part.stop - part.start for part in parts[split]) for split in SPLITS},
        },
        shards=tuple(
            Shard(f"{split}-{number:05d}", partial(_read, part, tokenizer), split)
            for split in SPLITS
            for number, part in enumerate(parts[split])
        ),
        arrange=by_shard,
        symbol_type=tokenizer.id_type,
        files={"tokenizer.json": tokenizer.json},
    )
