"""Sentences and pairs of sentences as tokens of a vocabulary that was learned from text."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.language.tokenizer import Tokenizer
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import Symbols

CHUNK = 4096
"""Number of examples whose text is in memory at a time."""


def _text(document: NDArray[Any]) -> str:
    try:
        return bytes(document).decode()
    except UnicodeDecodeError as error:
        do = "prepare the examples again, from files that contain text"
        raise SbmtError("documents in UTF-8", f"{error.reason}: {error.object[:50]!r}", do) from error


def encode_split(split: Split, tokenizer: Tokenizer, length: int) -> tuple[Split, int]:
    """Encodes the examples of a split: sentences as ``<s> A </s>``, pairs as ``<s> A </s></s> B </s>``.

    The examples have one document or two, as UTF-8 bytes. One of more than ``length`` tokens, special ones included,
    loses tokens at the end of its longer sentence.

    Returns:
        The same examples in memory, in the same order, with one document of token ids each; and the number of examples
        that were cut.

    Raises:
        SbmtError: If an example is no text or has more than two documents, or ``length`` is too small for any token.

    Cost: memory for the tokens, two or four bytes each, and for the text of :data:`CHUNK` examples.
    """
    n_documents = split.lengths.shape[1]
    if split.symbols.dtype != np.uint8 or n_documents not in (1, 2):
        got = f"{n_documents} of {split.symbols.dtype}"
        raise SbmtError("one document or two of bytes", got, "encode examples of text once, as they were prepared")
    rows: list[Symbols] = []
    n_cut = 0
    for start in range(0, len(split), CHUNK):
        examples = range(start, min(start + CHUNK, len(split)))
        texts = [[_text(document) for document in split.documents(example)] for example in examples]
        second = [row[1] for row in texts] if n_documents == 2 else None
        packed, n_cut_here = tokenizer.pack([row[0] for row in texts], second, length)
        rows += packed
        n_cut += n_cut_here
    sizes = np.array([len(row) for row in rows], np.int64)[:, None]
    symbols = np.concatenate([np.empty(0, tokenizer.id_type), *rows])
    offsets = sizes.cumsum()[:, None] - sizes
    return Split(np.arange(len(split)), split.labels, symbols, offsets, sizes, split.extras), n_cut
