"""Masked language modelling: blocks of a text's tokens, some of which are hidden and have to be predicted."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.language.tokenizer import Tokenizer
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import Symbols

SELECTED = 0.15
"""Share of the tokens that have to be predicted."""

HIDDEN, REPLACED = 0.8, 0.1
"""Shares of the selected tokens that become ``<mask>``, and that become another token; the rest stay unchanged."""

_STREAM = 0x6D61736B
"""Makes these draws independent of others with the same key."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """A stream of tokens as blocks of one length: ``<s>``, ``length − 2`` tokens, ``</s>``.

    Blocks end where they are full, even within a sentence. The last one may be shorter and is padded.

    Raises:
        SbmtError: If no token fits between start and end.
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

        Raises:
            SbmtError: If there is no block with such a number.

        Example:
            >>> ids = np.array([7, 8, 9, 10, 11], np.uint16)
            >>> blocks = Blocks(ids, 5, start_id=0, end_id=2, padding_id=1)
            >>> blocks.rows(np.arange(len(blocks)))[0].tolist()
            [[0, 7, 8, 9, 2], [0, 10, 11, 2, 1]]
        """
        if len(examples) and not 0 <= examples.min() <= examples.max() < len(self):
            raise SbmtError(f"blocks in [0, {len(self)})", examples.tolist(), "use numbers of blocks")
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
    """The blocks of a split of a corpus.

    Raises:
        SbmtError: If the split is not one stream, or its symbols are not ids of such a tokeniser.
    """
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
    tokens: NDArray[np.int64],
    is_real: NDArray[np.bool_],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Selects the tokens that have to be predicted, and hides most of them.

    Every real token that is not a special one is selected with probability .15, independently of all others. A
    selected token becomes ``<mask>`` with probability .8. With probability .1 it becomes a token drawn uniformly from
    the vocabulary without its special tokens (which may be the true one again), and with .1 it stays.

    Args:
        tokens: ``(batch, n)``.
        is_real: Bool of the same shape; False at padding.
        tokenizer: The tokeniser whose ids they are.
        rng: Source of the draws, whose number does not depend on the tokens.

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

    Args:
        blocks: The blocks of the text.
        examples: The numbers of all blocks of the batch.
        part: Which of them to return, such as ``slice(0, 16)``.
        tokenizer: The tokeniser whose ids they are.
        key: Decides what is drawn, such as a seed and the number of the batch.

    Returns:
        A batch whose ``labels`` are the true ids of the selected tokens, row by row; there may be none.

    Raises:
        SbmtError: If there is no block with such a number.
    """
    tokens, is_real = blocks.rows(examples)
    rng = np.random.Generator(np.random.PCG64([*key, _STREAM]))
    inputs, selected = select_and_mask(tokens, is_real, tokenizer, rng)
    here = selected[part]
    n_here, n_all = int(here.sum()), int(selected.sum())
    weight = n_here * len(examples) / (len(here) * n_all) if n_here else 0.0
    given, real, labels, asked = map(torch.from_numpy, (inputs[part], is_real[part], tokens[part][here], here))
    return Batch(given, real, labels, selected=asked, weight=weight)
