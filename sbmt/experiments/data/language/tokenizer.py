"""Text as tokens of a byte-level vocabulary: every text has ids, and they give it back."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.source import Symbols, SymbolType
from sbmt.experiments.files import write_bytes

if TYPE_CHECKING:
    import tokenizers

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


def check_room(length: int, n_documents: int) -> int:
    """How many ids of documents fit beside the special ones.

    Raises:
        SbmtError: If it is less than one of each document.
    """
    room = length - 2 * n_documents
    if room < n_documents:
        expected = f"length ≥ {3 * n_documents}: {2 * n_documents} special tokens and one of each text"
        raise SbmtError(expected, length, "give a larger length")
    return room


def shares(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """How much of two documents fits: all of the shorter one if that is at most half, else about half of each.

    Example:
        >>> shares(3, 9, 8), shares(7, 9, 9), shares(2, 3, 8)
        ((3, 5), (4, 5), (2, 3))
    """
    if n_first + n_second <= room:
        return n_first, n_second
    if n_first > n_second:
        return shares(n_second, n_first, room)[::-1]
    kept = min(n_first, room // 2)
    return kept, room - kept


def pack_ids(
    first: Iterable[Symbols], second: Iterable[Symbols] | None, length: int, start_id: int, end_id: int
) -> tuple[list[Symbols], int]:
    """``<s> A </s>`` for every document, or ``<s> A </s></s> B </s>`` for every pair.

    What is too long loses its end: of a pair the longer document does, until both are alike, then both do.

    Args:
        first: Ids of documents.
        second: Of as many more, or None.
        length: Most ids per example, special ones included.
        start_id: Of ``<s>``.
        end_id: Of ``</s>``.

    Returns:
        The ids of every example, and how many examples were cut.

    Raises:
        SbmtError: If ``length`` leaves no room for an id of each document.

    Example:
        >>> first, second = np.array([7, 8, 9], np.uint16), np.array([5], np.uint16)
        >>> packed, n_cut = pack_ids([first], [second], 7, 0, 2)
        >>> packed[0].tolist(), n_cut
        ([0, 7, 8, 2, 2, 5, 2], 1)
    """
    room = check_room(length, 1 if second is None else 2)
    packed: list[Symbols] = []
    n_cut = 0
    if second is None:
        for ids in first:
            packed.append(np.array([start_id, *ids[:room], end_id], ids.dtype))
            n_cut += len(ids) > room
        return packed, n_cut
    for a, b in zip(first, second, strict=True):
        n_a, n_b = shares(len(a), len(b), room)
        packed.append(np.array([start_id, *a[:n_a], end_id, end_id, *b[:n_b], end_id], a.dtype))
        n_cut += len(a) + len(b) > room
    return packed, n_cut


CHUNK_CHARACTERS = 1 << 20
"""The library holds about a hundred bytes per token of what it encodes at once."""

_PROBE = "a\n\tbc  <s> <mask></s> Ée\u0301𝄞\0\x85\u2028 1٣’s\r\n "
_DO = "take a tokenizer.json of RoBERTa's kind, or have one trained"


@dataclass(frozen=True)
class Tokenizer:
    """Byte-pair encoding of UTF-8 bytes, with RoBERTa's five special tokens.

    The special tokens' ids are found by name, so that files with ``<mask>`` at the end of the vocabulary will do. A
    text is never read as a special token, whatever is written in it. Copies and pickles hold the JSON alone.

    Attributes:
        json: A ``tokenizer.json`` as the library ``tokenizers`` reads it.

    Raises:
        SbmtError: If it is no such JSON, lacks a special token, or does not give back the bytes of a text.
    """

    json: str

    def __post_init__(self) -> None:
        if lacking := [name for name in SPECIALS if self._library.token_to_id(name) is None]:
            raise SbmtError(f"a tokeniser with {', '.join(SPECIALS)}", f"one without {', '.join(lacking)}", _DO)
        decoded = self.decode(self.encode(_PROBE))
        if decoded != _PROBE:
            raise SbmtError("a byte-level tokeniser, which gives back its text", f"{decoded!r} for {_PROBE!r}", _DO)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Reads a ``tokenizer.json``.

        Raises:
            SbmtError: If it cannot be read, or see :class:`Tokenizer`.
        """
        try:
            return cls(path.read_text("utf-8"))
        except OSError as error:
            raise SbmtError(f"a tokeniser in {path}", error.strerror or error, "check its name and rights") from error
        except UnicodeDecodeError as error:
            raise SbmtError(f"a tokeniser in {path}", f"damage ({error})", _DO) from error

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """From the content of a ``tokenizer.json``; what comes back from :meth:`to_json`."""
        return cls(text)

    def to_json(self) -> str:
        """The content of a ``tokenizer.json``."""
        return self.json

    def save(self, path: Path) -> None:
        """Writes a ``tokenizer.json``, whole or not at all."""
        write_bytes(path, self.json.encode())

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[str]]:
        return Tokenizer, (self.json,)

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, sha256 {self.sha256[:12]}…)"

    @cached_property
    def _library(self) -> "tokenizers.Tokenizer":
        try:
            library: tokenizers.Tokenizer = import_tokenizers().Tokenizer.from_str(self.json)
        except SbmtError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise SbmtError("the JSON of a tokeniser", f"something else ({error})", _DO) from error
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # as text: "<s>" in a review is three characters
        return library

    @cached_property
    def sha256(self) -> str:
        """Of the JSON's UTF-8 bytes, which is that of the file."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._library.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """Of ``<s>``, ``<pad>``, ``</s>``, ``<unk>`` and ``<mask>``."""
        return tuple(int(self._library.token_to_id(name)) for name in SPECIALS)  # type: ignore[arg-type]

    @property
    def start_id(self) -> int:
        """Of ``<s>``."""
        return self.special_ids[0]

    @property
    def padding_id(self) -> int:
        """Of ``<pad>``."""
        return self.special_ids[1]

    @property
    def end_id(self) -> int:
        """Of ``</s>``."""
        return self.special_ids[2]

    @property
    def unknown_id(self) -> int:
        """Of ``<unk>``, which no text needs."""
        return self.special_ids[3]

    @property
    def mask_id(self) -> int:
        """Of ``<mask>``."""
        return self.special_ids[4]

    @property
    def id_type(self) -> SymbolType:
        """The smaller of ``uint16`` and ``uint32`` that holds every id."""
        return "uint16" if self.vocab_size <= 1 << 16 else "uint32"

    def encode(self, text: str) -> Symbols:
        """The ids of a text, without special ones.

        Raises:
            SbmtError: If the text holds half a surrogate pair, which UTF-8 cannot.
        """
        return next(self.encode_each([text]))

    def encode_each(self, texts: Iterable[str]) -> Iterator[Symbols]:
        """The ids of every text, one array after the other.

        Texts are encoded in batches of about :data:`CHUNK_CHARACTERS`, on all cores.

        Raises:
            SbmtError: As :meth:`encode`.
        """
        chunk: list[str] = []
        n_characters = 0
        for text in texts:
            chunk.append(text)
            n_characters += len(text)
            if n_characters >= CHUNK_CHARACTERS:
                yield from self._encode(chunk)
                chunk, n_characters = [], 0
        yield from self._encode(chunk)

    def _encode(self, texts: list[str]) -> Iterator[Symbols]:
        try:
            encodings = self._library.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError as error:
            raise SbmtError("texts that UTF-8 can hold", error, "remove lone surrogates from them") from error
        for encoding in encodings:
            yield np.array(encoding.ids, self.id_type)

    def encode_lines(self, text: str) -> Symbols:
        """The ids of a text, each line by itself: no token crosses a line's end, so parts may be encoded apart.

        :meth:`encode` may take blanks before and after a line feed together.
        """
        return np.concatenate([np.empty(0, self.id_type), *self.encode_each(lines_of(text))])

    def decode(self, ids: Iterable[int] | NDArray[Any]) -> str:
        """The text of ids; special ones have none, and bytes that are no UTF-8 become ``�``.

        Raises:
            SbmtError: If an id is not in the vocabulary.
        """
        plain = [token for token in (int(i) for i in ids) if token not in self.special_ids]
        if plain and not 0 <= min(plain) <= max(plain) < self.vocab_size:
            raise SbmtError(f"ids in [0, {self.vocab_size})", sorted({min(plain), max(plain)}), "take this tokeniser's")
        return self._library.decode(plain, skip_special_tokens=False)

    def glyph(self, token_id: int) -> str:
        """How pictures and tables write a token: blanks and line ends visible, special tokens by name.

        Raises:
            SbmtError: If the id is not in the vocabulary.
        """
        token = self._library.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
        if token is None:
            raise SbmtError(f"an id in [0, {self.vocab_size})", token_id, "take one of this tokeniser's")
        return glyph(token)

    def pack(self, first: Sequence[str], second: Sequence[str] | None, length: int) -> tuple[list[Symbols], int]:
        """``<s> A </s>`` for every text, or ``<s> A </s></s> B </s>`` for every pair.

        What is too long loses its end: of a pair the longer text does, until both are alike, then both do.

        Args:
            first: Texts.
            second: As many more, or None.
            length: Most ids per example, special ones included.

        Returns:
            The ids of every example, and how many examples were cut.

        Raises:
            SbmtError: If ``length`` leaves no room for a token of each text, or there are not as many second texts.
        """
        check_room(length, 1 if second is None else 2)
        if second is not None and len(second) != len(first):
            raise SbmtError(f"{len(first)} second texts, one per first", len(second), "give pairs")
        seconds = None if second is None else self.encode_each(second)
        return pack_ids(self.encode_each(first), seconds, length, self.start_id, self.end_id)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 50265) -> Tokenizer:
    """A tokeniser of the commonest parts of words in the texts; see ``train_vocabulary``."""
    return Tokenizer(train_vocabulary(texts, vocab_size))
