"""Text as tokens of a byte-level vocabulary: every text has ids, from which it can be recovered."""

import hashlib
from collections.abc import Iterable, Sequence
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
"""The special tokens, with RoBERTa's names."""

N_BYTES = 256

LINES_AT_ONCE = 10_000
"""Lines that are encoded at once; the library needs about a hundred bytes per token of them."""

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
_PROBE = "a\n\tbc  <s> <mask></s> Ée\u0301𝄞\0\x85\u2028 1٣’s\r\n "
_DO = "use a tokenizer.json of RoBERTa's kind, or train one"


def _import_tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise SbmtError("the package tokenizers", "none", "install it: pip install tokenizers") from error
    return tokenizers


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with their ends. Only a line feed ends a line.

    Example:
        >>> lines_of("one\r\n\ntwo")
        ['one\r\n', '\n', 'two']
    """
    *lines, rest = text.split("\n")
    return [line + "\n" for line in lines] + ([rest] if rest else [])


def glyph(token: str) -> str:
    r"""An entry of a vocabulary as it is shown in pictures and tables.

    Blanks and line ends become visible, and bytes that are not a whole character are written in hexadecimal.

    Example:
        >>> glyph("Ġcat"), glyph("Ã©"), glyph("Ã"), glyph("<mask>")
        ('␣cat', 'é', '\\xc3', '<mask>')
    """
    if token in SPECIALS or any(sign not in _BYTE_OF for sign in token):
        return token
    text = bytes(_BYTE_OF[sign] for sign in token).decode("utf-8", "backslashreplace")
    return "".join(_SIGNS.get(c, c if c.isprintable() else repr(c)[1:-1]) for c in text)


def _signs_of_bytes() -> dict[str, int]:
    """The byte of each character in vocabularies: visible ones are those of Latin-1, the others start at 256."""
    visible = [b for b in range(N_BYTES) if chr(b).isprintable() and chr(b) not in " \xa0"]
    hidden = [b for b in range(N_BYTES) if b not in visible]
    return {chr(b): b for b in visible} | {chr(N_BYTES + i): b for i, b in enumerate(hidden)}


_BYTE_OF = _signs_of_bytes()


@dataclass(frozen=True)
class Tokenizer:
    """Byte-pair encoding of UTF-8 bytes, with RoBERTa's five special tokens.

    The ids of the special tokens are found by name, so that they may be anywhere in the vocabulary. No text is ever
    read as a special token, whatever is written in it. Copies and pickles contain only the JSON.

    Attributes:
        json: The content of a ``tokenizer.json``, as the library ``tokenizers`` reads it.

    Raises:
        SbmtError: If it is no such JSON, lacks a special token, or does not preserve the bytes of a text.
    """

    json: str

    def __post_init__(self) -> None:
        if lacking := [name for name in SPECIALS if self._library.token_to_id(name) is None]:
            raise SbmtError(f"a tokeniser with {', '.join(SPECIALS)}", f"one without {', '.join(lacking)}", _DO)
        template = _import_tokenizers().processors.RobertaProcessing(("</s>", self.end_id), ("<s>", self.start_id))
        self._library.post_processor = template
        decoded = self.decode(self.encode(_PROBE))
        if decoded != _PROBE:
            raise SbmtError("a byte-level tokeniser, which gives back its text", f"{decoded!r} for {_PROBE!r}", _DO)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Reads a ``tokenizer.json``.

        Raises:
            SbmtError: If it cannot be read, or is not what :class:`Tokenizer` needs.
        """
        try:
            return cls(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SbmtError(f"a tokeniser in {path}", error, f"check its name and permissions; {_DO}") from error

    def save(self, path: Path) -> None:
        """Writes a ``tokenizer.json``, either all of it or nothing."""
        write_bytes(path, self.json.encode())

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[str]]:
        return Tokenizer, (self.json,)

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, sha256 {self.sha256[:12]}…)"

    @cached_property
    def _library(self) -> "tokenizers.Tokenizer":
        package = _import_tokenizers()
        try:
            library: tokenizers.Tokenizer = package.Tokenizer.from_str(self.json)
        except Exception as error:  # the library raises nothing narrower
            raise SbmtError("the JSON of a tokeniser", f"something else ({error})", _DO) from error
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # as text: "<s>" in a review is three characters, not a special token
        return library

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the JSON in UTF-8, which is that of the file."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._library.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of ``<s>``, ``<pad>``, ``</s>``, ``<unk>`` and ``<mask>``."""
        return tuple(int(self._library.token_to_id(name)) for name in SPECIALS)  # type: ignore[arg-type]

    @property
    def start_id(self) -> int:
        """Id of ``<s>``."""
        return self.special_ids[0]

    @property
    def padding_id(self) -> int:
        """Id of ``<pad>``."""
        return self.special_ids[1]

    @property
    def end_id(self) -> int:
        """Id of ``</s>``."""
        return self.special_ids[2]

    @property
    def mask_id(self) -> int:
        """Id of ``<mask>``."""
        return self.special_ids[4]

    @property
    def id_type(self) -> SymbolType:
        """The smallest of ``uint16`` and ``uint32`` that can hold every id."""
        return "uint16" if self.vocab_size <= 1 << 16 else "uint32"

    def _encode(self, texts: Sequence[Any], *, add_special_tokens: bool = False) -> "list[tokenizers.Encoding]":
        """Encodes texts, or pairs of texts, on all cores."""
        try:
            return self._library.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        except TypeError as error:
            raise SbmtError("texts that UTF-8 can encode", error, "remove lone surrogates from them") from error

    def encode(self, text: str) -> Symbols:
        """The ids of a text, without special ones.

        Raises:
            SbmtError: If the text contains half a surrogate pair, which UTF-8 cannot encode.
        """
        return np.array(self._encode([text])[0].ids, self.id_type)

    def encode_lines(self, text: str) -> Symbols:
        """The ids of a text whose lines are encoded separately, so that its parts can be encoded independently."""
        lines = lines_of(text)
        ids = [np.empty(0, self.id_type)]
        for start in range(0, len(lines), LINES_AT_ONCE):
            encodings = self._encode(lines[start : start + LINES_AT_ONCE])
            ids += [np.array(encoding.ids, self.id_type) for encoding in encodings]
        return np.concatenate(ids)

    def decode(self, ids: Iterable[int] | NDArray[Any]) -> str:
        """The text of ids. Special ones have no text, and bytes that are not UTF-8 become ``�``.

        Raises:
            SbmtError: If an id is not in the vocabulary.
        """
        plain = [token for token in map(int, ids) if token not in self.special_ids]
        if wrong := [token for token in plain if not 0 <= token < self.vocab_size]:
            raise SbmtError(f"ids in [0, {self.vocab_size})", wrong[0], "use ids of this tokeniser")
        return self._library.decode(plain, skip_special_tokens=False)

    def glyph(self, token_id: int) -> str:
        """A token as it is shown in pictures and tables: blanks and line ends are visible, special tokens have names.

        Raises:
            SbmtError: If the id is not in the vocabulary.
        """
        token = self._library.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
        if token is None:
            raise SbmtError(f"an id in [0, {self.vocab_size})", token_id, "use an id of this tokeniser")
        return glyph(token)

    def pack(self, first: Sequence[str], second: Sequence[str] | None, length: int) -> tuple[list[Symbols], int]:
        """Encodes texts as ``<s> A </s>`` and pairs as ``<s> A </s></s> B </s>``.

        Examples of more than ``length`` ids, special ones included, lose tokens at their end. In a pair, the longer
        text is cut until both have the same length, then both are.

        Returns:
            The ids of every example, and the number of examples that were cut.

        Raises:
            SbmtError: If ``length`` leaves no room for a token of each text, or the numbers of texts differ.
        """
        n_documents = 1 if second is None else 2
        if length < 3 * n_documents:
            expected = f"length ≥ {3 * n_documents}: {2 * n_documents} special tokens and one of each text"
            raise SbmtError(expected, length, "give a larger length")
        if second is not None and len(second) != len(first):
            raise SbmtError(f"{len(first)} second texts, one per first", len(second), "give pairs")
        self._library.enable_truncation(length, strategy="longest_first")
        try:
            texts = first if second is None else list(zip(first, second, strict=True))
            encodings = self._encode(texts, add_special_tokens=True)
        finally:
            self._library.no_truncation()
        packed: list[Symbols] = [np.array(encoding.ids, self.id_type) for encoding in encodings]
        return packed, sum(bool(encoding.overflowing) for encoding in encodings)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 50265) -> Tokenizer:
    """Learns a tokeniser by byte-pair encoding, which merges the most frequent neighbours first.

    Ids 0 … 4 are :data:`SPECIALS`, followed by all 256 bytes and then the merges, as far as there are neighbours to
    merge. Before that, the text is divided into lines, and these by GPT-2's rule into words with the blank before
    them, numbers and signs. The same texts give the same vocabulary.

    Raises:
        SbmtError: If ``vocab_size`` is too small for the special tokens and the bytes.

    Cost: memory for the different words of the texts.

    Paper: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (ACL 2016), over bytes as in
    Radford et al., Language Models are Unsupervised Multitask Learners (2019).
    """
    least = len(SPECIALS) + N_BYTES
    if vocab_size < least:
        raise SbmtError(f"vocab_size ≥ {least}: special tokens and bytes", vocab_size, "give a larger one")
    package = _import_tokenizers()
    tokenizer = package.Tokenizer(package.models.BPE())
    tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(_BYTE_OF),
        show_progress=False,
    )
    tokenizer.train_from_iterator((line for text in texts for line in lines_of(text)), trainer)
    return Tokenizer(tokenizer.to_str())
