"""Masked language modelling: text of any size as one stream of tokens per split, cut into blocks with hidden tokens."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.locate import checked_sha256, missing, read_lines
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import SPLITS, Examples, Source, Symbols, check_numbers
from sbmt.experiments.data.tokenizer import Tokenizer, lines_of, train_tokenizer

VOCABULARY, REDUCED_VOCABULARY = 50265, 2048
"""The size of RoBERTa's vocabulary, and of one for a few megabytes of text and a small network."""

PART_BYTES = 1 << 24
"""Size of the text that is in memory at a time; a longer line is in memory as a whole."""

LINES_AT_ONCE = 10_000
"""Lines that are encoded at once; the library needs about a hundred bytes per token of them."""

EVERY = 20
"""One part in this many is held out for each split for which there is no file."""

FOLDER = "lm"
GET = "put text in UTF-8 there, in one file or several named *.txt or *.txt.gz"
_WORDS = {"valid": "dev", "validation": "dev", "val": "dev", "dev": "dev", "test": "test"}


def _files(path: Path) -> dict[str, list[Path]]:
    """The text files in a folder, by the split that their names contain; empty if they contain none."""
    found: list[Path] = []
    for folder in (path, path / FOLDER):
        if not found:
            files = [path] if path.is_file() else folder.glob("[!.]*")
            found = sorted(file for file in files if file.name.endswith((".txt", ".txt.gz")) and file.is_file())
    if not found:
        raise missing(["*.txt or *.txt.gz"], path, {}, GET)
    splits: dict[str, list[Path]] = {split: [] for split in ("", *SPLITS)}
    for file in found:
        words = re.split("[^a-z]+", file.name.lower())
        splits[next((_WORDS[word] for word in words if word in _WORDS), "")].append(file)
    return splits


def _parts(files: list[Path], size: int) -> Iterator[str]:
    """The text of files in parts of at least ``size`` bytes, each up to the end of a line."""
    for path in files:
        lines: list[bytes] = []
        first, n_bytes = 1, 0
        for number, line in enumerate(read_lines(path), start=1):
            lines.append(line)
            n_bytes += len(line)
            if n_bytes >= size:
                yield _decoded(b"".join(lines), path, first)
                lines, first, n_bytes = [], number + 1, 0
        if lines:
            yield _decoded(b"".join(lines), path, first)


def _decoded(content: bytes, path: Path, first_line: int) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = first_line + content[: error.start].count(b"\n")
        got, do = repr(content[error.start : error.end + 9]), "convert the file, or correct that line"
        raise SbmtError(f"text in UTF-8 in {path}, line {line}", got, do) from error


def _texts(files: dict[str, list[Path]]) -> dict[str, Callable[[], Iterator[str]]]:
    """What reads the text of each split, part by part."""
    held_out = [split for split in ("dev", "test") if next(_parts(files[split], 1), None) is None]
    size = PART_BYTES
    if held_out:
        size = min(size, -(-sum(len(line) for file in files[""] for line in read_lines(file)) // EVERY))
    while (n_parts := sum(1 for _ in _parts(files[""], size))) <= len(held_out) and size > 1:
        size //= 2  # a single line takes most of the text
    if n_parts <= len(held_out):
        needed = f"text of {len(held_out) + 1} lines or more for {' and '.join(['train', *held_out])}"
        names = ", ".join(file.name for some in files.values() for file in some)
        do = f"{GET}; a file with dev or test in its name is held out as a whole"
        raise SbmtError(f"{needed} in {names}", n_parts, do)
    order = ["train", *held_out] + ["train"] * (min(EVERY, n_parts) - 1 - len(held_out))

    def texts(split: str) -> Iterator[str]:
        yield from _parts(files[split], PART_BYTES)
        yield from (text for text, its in zip(_parts(files[""], size), itertools.cycle(order)) if its == split)

    return {split: partial(texts, split) for split in SPLITS}


def corpus_source(
    path: Path | str, *, tokenizer: Tokenizer | None = None, vocab_size: int = VOCABULARY, name: str = "corpus"
) -> Source:
    """Text as token ids. Each split is one stream: decoded, it gives back the text of its files, one after the other.

    ``path`` is a file ``*.txt`` or ``*.txt.gz`` in UTF-8, a folder of such files, or one that has them in a folder
    ``lm``. A file is for dev if its name contains the word ``dev``, ``val``, ``valid`` or ``validation``, and for test
    if it contains ``test``. If there is no file for one of these two, every 20th part of the other files is held out
    for it. Every line is encoded separately, together with its line feed, so that the stream does not depend on how the
    text is divided into parts. Without a tokeniser, one of ``vocab_size`` tokens is trained on the text of train.
    """
    files = _files(Path(path))
    sums = {file.name: checked_sha256(file) for some in files.values() for file in some}
    texts = _texts(files)
    is_trained = tokenizer is None
    tokenizer = tokenizer or train_tokenizer(texts["train"](), vocab_size)

    def parts() -> Iterator[tuple[str, Examples]]:
        for split in SPLITS:
            for lines in map(lines_of, texts[split]()):
                ids = [np.empty(0, tokenizer.id_type)]
                for start in range(0, len(lines), LINES_AT_ONCE):
                    ids += tokenizer.encode_all(lines[start : start + LINES_AT_ONCE])
                joined = np.concatenate(ids)
                yield split, Examples(joined, np.array([[len(joined)]]), np.zeros(1, np.int64))

    return Source(
        name=name,
        task="mlm",
        origin="own",
        class_names=("text",),
        vocab_size=tokenizer.vocab_size,
        first_id=0,
        settings={"files": sums, "tokenizer": tokenizer.sha256, "is_tokenizer_trained": is_trained},
        parts=parts,
        symbol_type=tokenizer.id_type,
        files={"tokenizer.json": tokenizer.json},
    )


SELECTED = 0.15  # share of the tokens that have to be predicted
HIDDEN, REPLACED = 0.8, 0.1  # shares of these that become <mask>, and another token; the rest stay unchanged
_STREAM = 0x6D61736B  # makes these draws independent of others with the same key


@dataclass(frozen=True, eq=False)
class Blocks:
    """A stream of tokens as blocks of one length: ``<s>``, ``length − 2`` tokens, ``</s>``.

    Blocks end where they are full, even within a sentence. The last one may be shorter and is padded.
    """

    symbols: Symbols  # token ids (n_tokens,), possibly mapped from disk
    length: int  # of a block, start and end included
    start_id: int
    end_id: int
    padding_id: int

    def __post_init__(self) -> None:
        if self.length < 3:
            raise SbmtError("length ≥ 3: start, end, and a token between them", self.length, "give a larger length")

    def __len__(self) -> int:
        return -(-len(self.symbols) // (self.length - 2))

    def rows(self, examples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The blocks with the given numbers: tokens ``(batch, length)``, and which of them are not padding.

        Example:
            >>> ids = np.array([7, 8, 9, 10, 11], np.uint16)
            >>> blocks = Blocks(ids, 5, start_id=0, end_id=2, padding_id=1)
            >>> blocks.rows(np.arange(len(blocks)))[0].tolist()
            [[0, 7, 8, 9, 2], [0, 10, 11, 2, 1]]
        """
        examples = check_numbers(examples, len(self), "numbers of blocks")
        n_inside = self.length - 2
        tokens = np.full((len(examples), self.length), self.padding_id, np.int64)
        is_real = np.zeros(tokens.shape, np.bool_)
        for row, example in enumerate(examples.tolist()):
            inside = self.symbols[example * n_inside : (example + 1) * n_inside]
            end = len(inside) + 1
            tokens[row, 0], tokens[row, 1:end], tokens[row, end] = self.start_id, inside, self.end_id
            is_real[row, : end + 1] = True
        return tokens, is_real


def blocks_of(split: Split, length: int, tokenizer: Tokenizer) -> Blocks:
    """The blocks of a split of a corpus."""
    starts, sizes = split.offsets[split.indices], split.lengths[split.indices]
    stops = starts + sizes
    if starts.shape[1:] != (1,) or not len(starts) or (starts[1:] != stops[:-1]).any():
        got = f"{split.lengths.shape[1]} documents per example, or gaps between examples"
        raise SbmtError("one stream of text per split", got, "prepare a corpus: sbmt data prepare corpus")
    if split.symbols.dtype != tokenizer.id_type:
        expected = f"{tokenizer.id_type} ids of {tokenizer}"
        raise SbmtError(expected, f"{split.symbols.dtype} symbols", "use the tokenizer.json beside the examples")
    symbols = split.symbols[int(starts[0, 0]) : int(stops[-1, 0])]
    return Blocks(symbols, length, tokenizer.start_id, tokenizer.end_id, tokenizer.padding_id)


def select_and_mask(
    tokens: NDArray[np.int64], is_real: NDArray[np.bool_], tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Selects the tokens that have to be predicted, and hides most of them.

    Every real token that is not a special one is selected with probability .15, independently of all others. A
    selected token becomes ``<mask>`` with probability .8. With probability .1 it becomes a token drawn uniformly from
    the vocabulary without its special tokens (which may be the true one again), and with .1 it stays.

    Returns:
        What the model reads, and which tokens are selected, both ``(batch, n)``.

    Paper: Devlin et al., BERT (NAACL 2019), section 3.1. The pipeline that the SBM paper uses draws replacements from
    all ids, including the special ones, five of 50,265.
    """
    is_plain = np.ones(tokenizer.vocab_size, np.bool_)
    is_plain[list(tokenizer.special_ids)] = False
    plain = np.flatnonzero(is_plain)
    selected = (rng.random(tokens.shape) < SELECTED) & is_real & is_plain[tokens]
    choice = rng.random(tokens.shape)
    others = plain[rng.integers(len(plain), size=tokens.shape)]
    hidden = np.where(choice < HIDDEN, tokenizer.mask_id, np.where(choice < HIDDEN + REPLACED, others, tokens))
    return np.where(selected, hidden, tokens), selected


def make_masked_batch(
    blocks: Blocks, examples: NDArray[np.int64], part: slice, tokenizer: Tokenizer, key: tuple[int, int]
) -> Batch:
    """A part of a batch of blocks with tokens that have to be predicted.

    Selection and masks are drawn for the whole batch, so that processes that share it draw what a single one would.

    Returns:
        A batch whose ``labels`` are the true ids of the selected tokens, row by row; there may be none.
    """
    tokens, is_real = blocks.rows(examples)
    rng = np.random.Generator(np.random.PCG64([*key, _STREAM]))
    inputs, selected = select_and_mask(tokens, is_real, tokenizer, rng)
    here = selected[part]
    n_here, n_all = int(here.sum()), int(selected.sum())
    weight = n_here * len(examples) / (len(here) * n_all) if n_here else 0.0
    given, real, labels, asked = map(torch.from_numpy, (inputs[part], is_real[part], tokens[part][here], here))
    return Batch(given, real, labels, selected=asked, weight=weight)
