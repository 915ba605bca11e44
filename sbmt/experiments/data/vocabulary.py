"""The vocabulary of a byte-level tokeniser: how it is trained, and how its tokens are written."""

from collections.abc import Iterable
from typing import Any

from sbmt.errors import SbmtError

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""RoBERTa's names."""

N_BYTES = 256
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}


def import_tokenizers() -> Any:
    """The library ``tokenizers``, loaded when it is first needed.

    Raises:
        SbmtError: If it is not installed.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise SbmtError("the package tokenizers", "none", "install it: pip install tokenizers") from error
    return tokenizers


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with their ends; only a line feed ends one.

    Example:
        >>> lines_of("one\r\n\ntwo")
        ['one\r\n', '\n', 'two']
    """
    *lines, rest = text.split("\n")
    return [line + "\n" for line in lines] + ([rest] if rest else [])


def train_vocabulary(texts: Iterable[str], vocab_size: int) -> str:
    """Byte-pair encoding of texts: a vocabulary that merges the commonest neighbours first.

    Ids 0 … 4 are :data:`SPECIALS`, then come all 256 bytes, then merges. Words with the blank before them, numbers
    and signs are told apart by GPT-2's rule before anything is merged, and so are lines. The same texts give the same
    vocabulary.

    Args:
        texts: Read once, one after the other.
        vocab_size: How many tokens; fewer where no neighbours are left to merge.

    Returns:
        The content of a ``tokenizer.json``.

    Raises:
        SbmtError: If ``vocab_size`` has no room for the special tokens and the bytes.

    Cost: memory for the different words of the texts.

    Paper: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (ACL 2016), over bytes as in
    Radford et al., Language Models are Unsupervised Multitask Learners (2019).
    """
    least = len(SPECIALS) + N_BYTES
    if vocab_size < least:
        raise SbmtError(f"vocab_size ≥ {least}: special tokens and bytes", vocab_size, "give a larger one")
    library = import_tokenizers()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(_BYTE_OF),
        show_progress=False,
    )
    tokenizer.train_from_iterator((line for text in texts for line in lines_of(text)), trainer)
    content: str = tokenizer.to_str()
    return content


def glyph(token: str) -> str:
    r"""How pictures and tables write an entry of a vocabulary.

    Blanks and line ends become visible; bytes that are no whole character are written in hexadecimal.

    Example:
        >>> glyph("Ġcat"), glyph("Ã©"), glyph("Ã"), glyph("<mask>")
        ('␣cat', 'é', '\\xc3', '<mask>')
    """
    if token in SPECIALS or any(sign not in _BYTE_OF for sign in token):
        return token
    text = bytes(_BYTE_OF[sign] for sign in token).decode("utf-8", "backslashreplace")
    return "".join(_SIGNS.get(c, c if c.isprintable() else repr(c)[1:-1]) for c in text)


def _signs_of_bytes() -> dict[str, int]:
    """The character that vocabularies write for each byte: itself if it is visible in Latin-1, else one from 256 on."""
    visible = [b for b in range(N_BYTES) if chr(b).isprintable() and chr(b) not in " \xa0"]
    hidden = [b for b in range(N_BYTES) if b not in visible]
    return {chr(b): b for b in visible} | {chr(N_BYTES + i): b for i, b in enumerate(hidden)}


_BYTE_OF = _signs_of_bytes()
