"""Text corpora for language models. Each split is one stream of tokens, which is cut into blocks of equal length."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.locate import missing, read_text, sha256_of
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import SPLITS, Bools, Examples, Ints, Source, Symbols, check_numbers
from sbmt.experiments.data.tokenizer import Tokenizer, train_tokenizer

VOCABULARY, REDUCED_VOCABULARY = 50265, 2048  # RoBERTa's size, and one suited to a few megabytes of text
LINES_AT_ONCE = 100_000  # number of lines held in memory at a time
EVERY = 20  # one in this many lines is held out for each split that has no file
FOLDER = "lm"
NAME = re.compile(r"[^.].*\.txt(\.gz)?", re.DOTALL)
GET = "provide UTF-8 text in one or more files named *.txt or *.txt.gz"
_WORDS = {"valid": "dev", "validation": "dev", "val": "dev", "dev": "dev", "test": "test"}

Lines = Iterator[tuple[Path, str]]  # lines, each preceded by the file that contains it


def _files(path: Path) -> dict[str, list[Path]]:
    """Groups the text files in a folder by the split that their names contain; files without one belong to train."""
    folders = [[path]] if path.is_file() else [d.iterdir() for d in (path, path / FOLDER) if d.is_dir()]
    texts = [sorted(f for f in files if NAME.fullmatch(f.name) and f.is_file()) for files in folders]
    found = next(filter(None, texts), [])
    if not found:
        raise missing(["*.txt or *.txt.gz"], path, {}, GET)
    splits: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for file in found:
        words = re.split("[^a-z]+", file.name.lower())
        splits[next((_WORDS[word] for word in words if word in _WORDS), "train")].append(file)
    return splits


def _lines(files: list[Path]) -> Lines:
    return ((path, line) for path in files for _, line in read_text(path))


def _divide(files: dict[str, list[Path]]) -> Callable[[str], Lines]:
    """Returns a function that reads a split. Without a file for dev or test, a twentieth is held out of train."""
    held_out = [split for split in ("dev", "test") if not files[split]]
    n_lines = sum(1 for _ in _lines(files["train"]))
    n_each = -(-n_lines // EVERY)
    n_train = n_lines - n_each * len(held_out)
    if n_train < 1:
        expected = f"at least {1 + len(held_out)} lines of text to divide into {', '.join(['train', *held_out])}"
        raise SbmtError(expected, n_lines, f"{GET}; a file with dev or test in its name becomes that split")
    stops = {"train": n_train} | {split: n_train + n_each * i for i, split in enumerate(held_out, start=1)}

    def lines(split: str) -> Lines:
        if split not in stops:
            return _lines(files[split])
        return islice(_lines(files["train"]), 0 if split == "train" else stops[split] - n_each, stops[split])

    return lines


def corpus_source(
    path: Path | str, *, tokenizer: Tokenizer | None = None, vocab_size: int = VOCABULARY, name: str = "corpus"
) -> Source:
    """Returns a source of text as token ids, one stream per split. Decoding a stream restores the text of its files.

    File names determine the splits. By default, a tokeniser with ``vocab_size`` tokens is fitted to the training text.
    """
    files = _files(Path(path))
    sums = {file.name: sha256_of(file) for some in files.values() for file in some}
    found: dict[str, tuple[str, str]] = {}  # maps a checksum to the split and name of its file
    for split, some in files.items():
        for file in some:
            if (before := found.setdefault(sums[file.name], (split, file.name)))[0] != split:
                got = f"{before[1]} and {file.name} with the same text"
                raise SbmtError("different text in every split", got, "use different data for training and testing")
    lines = _divide(files)
    is_trained = tokenizer is None
    tokenizer = tokenizer or train_tokenizer((line for _, line in lines("train")), vocab_size)

    def parts() -> Iterator[tuple[str, Examples]]:
        for split in SPLITS:
            for _, of_file in groupby(lines(split), key=itemgetter(0)):
                while some := [line for _, line in islice(of_file, LINES_AT_ONCE)]:
                    ids = np.concatenate(tokenizer.encode_all(some))
                    yield split, Examples(ids, np.array([[len(ids)]]), np.zeros(1, np.int64))

    settings = {"files": sums, "tokenizer": tokenizer.sha256, "is_tokenizer_trained": is_trained}
    size, id_type, beside = tokenizer.vocab_size, tokenizer.id_type, {"tokenizer.json": tokenizer.json}
    return Source(name, "mlm", "own", ("text",), size, 0, settings, parts, symbol_type=id_type, files=beside)


SELECTED = 0.15  # share of tokens to predict
HIDDEN, REPLACED = 0.8, 0.1  # shares of these replaced by <mask> or by a random token; the others stay unchanged
_STREAM = 0x6D61736B  # keeps these draws independent of other draws with the same key


@dataclass(frozen=True, eq=False)
class Blocks:
    """A token stream cut into blocks of ``<s>``, ``length − 2`` tokens and ``</s>``; the last block is padded."""

    symbols: Symbols  # token ids (n_tokens,), possibly memory-mapped
    length: int  # number of tokens per block, including start and end
    start_id: int
    end_id: int
    padding_id: int

    def __post_init__(self) -> None:
        if self.length < 3:
            raise SbmtError("length ≥ 3, to hold <s>, a token and </s>", self.length, "choose a larger length")

    def __len__(self) -> int:
        return -(-len(self.symbols) // (self.length - 2))

    def rows(self, examples: Ints) -> tuple[Ints, Bools]:
        """Returns the tokens of the given blocks, ``(batch, length)``, and a mask that is False at padding."""
        examples = check_numbers(examples, len(self), "block numbers")
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
    """Cuts one split of a corpus into blocks."""
    starts, sizes = split.offsets[split.indices], split.lengths[split.indices]
    stops = starts + sizes
    if starts.shape[1:] != (1,) or not len(starts) or (starts[1:] != stops[:-1]).any():
        got = f"{split.lengths.shape[1]} documents per example, or gaps between examples"
        raise SbmtError("one stream of text per split", got, "run sbmt data prepare corpus")
    symbols = split.symbols[int(starts[0, 0]) : int(stops[-1, 0])]
    return Blocks(symbols, length, tokenizer.start_id, tokenizer.end_id, tokenizer.padding_id)


def select_and_mask(tokens: Ints, is_real: Bools, tokenizer: Tokenizer, rng: np.random.Generator) -> tuple[Ints, Bools]:
    """Selects 15 % of the ordinary tokens for prediction, and hides most of the selected ones.

    Paper: Devlin et al., BERT (NAACL 2019), section 3.1; here, special tokens are never used as replacements.
    """
    plain = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    selected = (rng.random(tokens.shape) < SELECTED) & is_real & ~np.isin(tokens, tokenizer.special_ids)
    choice = rng.random(tokens.shape)
    others = plain[rng.integers(len(plain), size=tokens.shape)]
    hidden = np.where(choice < HIDDEN, tokenizer.mask_id, np.where(choice < HIDDEN + REPLACED, others, tokens))
    return np.where(selected, hidden, tokens), selected


def make_masked_batch(blocks: Blocks, examples: Ints, part: slice, tokenizer: Tokenizer, key: tuple[int, int]) -> Batch:
    """Masks a batch of blocks, and returns one part of it with the original ids of the selected tokens as labels."""
    tokens, is_real = blocks.rows(examples)
    rng = np.random.Generator(np.random.PCG64([*key, _STREAM]))
    inputs, selected = select_and_mask(tokens, is_real, tokenizer, rng)
    return _part_of(inputs, is_real, tokens, selected, part)


def next_tokens(blocks: Blocks, examples: Ints, part: slice) -> Batch:
    """Returns one part of a batch of blocks, where the label of each token is the next token."""
    tokens, is_real = blocks.rows(examples)
    is_followed = np.pad(is_real[:, 1:], ((0, 0), (0, 1)))
    return _part_of(tokens, is_real, np.roll(tokens, -1, 1), is_followed, part)


def _part_of(inputs: Ints, is_real: Bools, labels: Ints, selected: Bools, part: slice) -> Batch:
    """Returns some rows of a batch, with the labels of their selected tokens and the weight of their mean loss."""
    here = selected[part]
    n_here, n_all = int(here.sum()), int(selected.sum())
    weight = n_here * len(selected) / (len(here) * n_all) if n_here else 0.0
    given, real, wanted, asked = map(torch.from_numpy, (inputs[part], is_real[part], labels[part][here], here))
    return Batch(given, real, wanted, selected=asked, weight=weight)
