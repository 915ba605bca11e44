"""Byte-level tokenisers, which can encode any text and recover it from its ids."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from sbmt.errors import SbmtError, is_integer, printable
from sbmt.experiments.data.source import Symbols, SymbolType, check_numbers
from sbmt.experiments.files import read_file, write_bytes

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # named as in RoBERTa
LEAST_TOKENS, MOST_TOKENS = len(SPECIALS) + 256, 1 << 24  # limits of vocab_size; RoBERTa's is 50,265
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
_DO = "use a tokenizer.json in RoBERTa's format, or train one"
_PROBE = "a\n\tbc  <s> <mask></s> Ée\u0301𝄞\0\x85\u2028 1٣’s\r\n "


def train_tokenizer(texts: Iterable[str], vocab_size: int = 50265) -> "Tokenizer":
    """Trains a byte-pair encoding whose first tokens are ``SPECIALS`` and all bytes. Training is deterministic.

    Paper: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (ACL 2016), over bytes as in
    Radford et al., Language Models are Unsupervised Multitask Learners (2019).
    """
    if not is_integer(vocab_size) or not LEAST_TOKENS <= vocab_size <= MOST_TOKENS:
        expected = f"vocab_size from {LEAST_TOKENS} (special tokens and bytes) to {MOST_TOKENS}"
        raise SbmtError(expected, vocab_size, "choose a size in this range")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(_BYTE_OF),
        show_progress=False,
    )
    tokenizer.train_from_iterator((line for text in texts for line in re.findall("[^\n]*\n|[^\n]+", text)), trainer)
    return Tokenizer(tokenizer.to_str())


@dataclass(frozen=True)
class Tokenizer:
    """Byte-pair encoding of UTF-8 bytes with RoBERTa's five special tokens, based on the library ``tokenizers``.

    Special tokens may have any ids; text is never encoded as one of them.
    """

    json: str = field(repr=False)

    def __post_init__(self) -> None:
        if None in self.special_ids or self.vocab_size > MOST_TOKENS or getattr(self._library.model, "dropout", None):
            got = f"the ids {self.special_ids} and a vocabulary of {self.vocab_size}"
            expected = f"a tokeniser without dropout, with ids for {', '.join(SPECIALS)}, all below {MOST_TOKENS}"
            raise SbmtError(expected, got, _DO)
        if (decoded := self.decode(self.encode(_PROBE))) != _PROBE:
            raise SbmtError("a byte-level tokeniser that reproduces its text", f"{decoded!r} for {_PROBE!r}", _DO)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Reads a ``tokenizer.json``; raises SbmtError if the file is missing or unsuitable."""
        content = read_file(path).decode(errors="surrogateescape")
        try:
            return cls(content)
        except SbmtError as error:
            raise SbmtError(f"{error.args[0]} in {path}", *error.args[1:]) from error

    def save(self, path: Path) -> None:
        """Writes a ``tokenizer.json`` atomically."""
        write_bytes(path, self.json.encode())

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[str]]:
        return Tokenizer, (self.json,)

    @cached_property
    def _library(self) -> "tokenizers.Tokenizer":
        try:
            content = json.loads(self.json)
            if content.get("normalizer") or content["model"].get("continuing_subword_prefix"):
                raise ValueError("it changes the text")  # some normalisers also print a panic before they fail
            library = tokenizers.Tokenizer.from_str(self.json)
        except BaseException as error:  # panics in its Rust code derive from BaseException
            raise SbmtError("the valid JSON of a tokeniser", f"damaged JSON ({str(error)[:200]})", _DO) from error
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # "<s>" in a review counts as three characters of text
        end, start = ((name, library.token_to_id(name) or 0) for name in ("</s>", "<s>"))
        library.post_processor = processors.RobertaProcessing(end, start)
        return library

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the JSON in UTF-8, which is also the checksum of the saved file."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """Size of the vocabulary, which is the largest id plus one."""
        return max(self._library.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of ``<s>``, ``<pad>``, ``</s>``, ``<unk>`` and ``<mask>``."""
        return tuple(self._library.token_to_id(name) for name in SPECIALS)  # type: ignore[misc]

    start_id = property(lambda self: self.special_ids[0])
    padding_id = property(lambda self: self.special_ids[1])
    end_id = property(lambda self: self.special_ids[2])
    mask_id = property(lambda self: self.special_ids[4])

    @property
    def id_type(self) -> SymbolType:
        """The smaller of two data types, 16 or 32 bits wide, that can store all ids."""
        return "uint16" if self.vocab_size <= 1 << 16 else "uint32"

    def encode(self, text: str) -> Symbols:
        """Returns the ids of a text, without special tokens."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[Symbols]:
        """Returns the ids of each text, without special tokens, using all cores."""
        return [np.array(encoding.ids, self.id_type) for encoding in self._encodings(texts, has_specials=False)]

    def _encodings(self, texts: Sequence[Any], *, has_specials: bool) -> "list[tokenizers.Encoding]":
        try:
            return self._library.encode_batch_fast(texts, add_special_tokens=has_specials)
        except (TypeError, ValueError) as error:
            raise SbmtError("texts that UTF-8 can encode", str(error)[:200], "remove lone surrogates") from error

    def decode(self, ids: Iterable[int] | NDArray[Any]) -> str:
        """Decodes ids to text. Special tokens are left out, and bytes that are not valid UTF-8 become ``�``."""
        known = check_numbers(ids if isinstance(ids, np.ndarray) else list(ids), self.vocab_size, "ids").tolist()
        return self._library.decode([i for i in known if i not in self.special_ids], skip_special_tokens=False)

    def glyph(self, token_id: int) -> str:
        """Formats a token for figures and tables, with visible blanks and line ends, and partial characters in hex."""
        check_numbers([token_id], self.vocab_size, "ids")
        token = self._library.id_to_token(int(token_id)) or ""
        if token in SPECIALS or any(sign not in _BYTE_OF for sign in token):
            return printable(token)
        text = bytes(_BYTE_OF[sign] for sign in token).decode("utf-8", "backslashreplace")
        return "".join(_SIGNS.get(c, printable(c)) for c in text)

    def pack(self, first: Sequence[str], second: Sequence[str] | None, length: int) -> tuple[list[Symbols], int]:
        """Encodes texts as ``<s> A </s>`` or pairs as ``<s> A </s></s> B </s>``, and counts those cut to ``length``."""
        least = 3 if second is None else 6
        if length < least:
            raise SbmtError(f"length ≥ {least} (special tokens and one per text)", length, "choose a larger length")
        texts = first if second is None else list(zip(first, second, strict=True))
        self._library.enable_truncation(length, strategy="longest_first")
        try:
            encodings = self._encodings(texts, has_specials=True)
        finally:
            self._library.no_truncation()
        n_cut = sum(bool(encoding.overflowing) for encoding in encodings)
        return [np.array(encoding.ids, self.id_type) for encoding in encodings], n_cut


def _signs_of_bytes() -> dict[str, int]:
    """Maps the characters of a vocabulary to bytes: visible ones as in Latin-1, and those from 256 upwards in order."""
    visible = [b for b in range(256) if chr(b).isprintable() and chr(b) not in " \xa0"]
    hidden = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTE_OF = _signs_of_bytes()
