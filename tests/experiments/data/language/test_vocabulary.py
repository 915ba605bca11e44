import hashlib
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from sbmt import SbmtError
from sbmt.experiments.data.language import tokenizer as vocabulary
from sbmt.experiments.data.language.tokenizer import glyph, lines_of, train_tokenizer

TEXTS = ["the cat sat on the mat\nthe cat ate the rat\n", "die Straße, größer als 1234567\n\n\nthe end"]
GOLDEN = "f8368a503c8a86e0be686bfe0dfa57c5fc779a36a6c19c8fb27024b33ba51f39"
"""SHA-256 of the vocabulary of 320 tokens trained on nine times these texts, with tokenizers 0.23."""


@given(st.text(st.sampled_from("ab \n\r\x0b\x0c\x1c\x85\u2028\u2029")))
def test_only_a_line_feed_ends_a_line(text):
    lines = lines_of(text)
    assert "".join(lines) == text and all(lines)
    assert lines == re.findall("[^\n]*\n|[^\n]+", text)


def test_the_bytes_have_the_signs_of_the_library():
    assert set(vocabulary._BYTE_OF) == set(ByteLevel.alphabet())
    assert sorted(vocabulary._BYTE_OF.values()) == list(range(256))
    splitter = ByteLevel(add_prefix_space=False, use_regex=False)
    for text in [chr(i) for i in range(128)] + ["é", "ÿ", "€", "𝄞", "\xa0", "\xad"]:
        [(signs, _)] = splitter.pre_tokenize_str(text)
        assert bytes(vocabulary._BYTE_OF[sign] for sign in signs) == text.encode()


@pytest.mark.parametrize(
    ("token", "written"),
    [
        ("Ġthe", "␣the"),
        ("ĠĠ", "␣␣"),
        ("Ċ", "↵"),
        ("ĉ", "⇥"),
        ("ÃŁ", "ß"),
        ("âĤ", r"\xe2\x82"),
        ("Ā", r"\x00"),
        ("ÂŃ", r"\xad"),
        ("<mask>", "<mask>"),
        ("<|other|> ", "<|other|> "),  # a name with a blank in it is no sequence of bytes
    ],
)
def test_every_token_can_be_written(token, written):
    assert glyph(token) == written


SORTED = sorted(vocabulary._BYTE_OF)


def twin_of_merges(words, n_merges):
    """Counts all neighbours anew for each merge; equal counts: the pair of smaller ids first."""
    words = {word: ([5 + SORTED.index(s) for s in word], n) for word, n in words.items()}
    names = {5 + i: s for i, s in enumerate(SORTED)}
    merges = []
    for new in range(5 + 256, 5 + 256 + n_merges):
        counts = {}
        for ids, n in words.values():
            for pair in pairwise(ids):
                counts[pair] = counts.get(pair, 0) + n
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        names[new] = names[best[0]] + names[best[1]]
        merges.append((names[best[0]], names[best[1]]))
        for word, (ids, n) in words.items():
            merged, i = [], 0
            while i < len(ids):
                is_pair = tuple(ids[i : i + 2]) == best
                merged.append(new if is_pair else ids[i])
                i += 1 + is_pair
            words[word] = merged, n
    return merges


def test_merges_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    words = {"".join(rng.choice(list("abcd"), rng.integers(2, 9))): int(rng.integers(1, 50)) for _ in range(30)}
    text = "".join(f"{word}\n" * n for word, n in words.items())
    merges = json.loads(train_tokenizer([text], 261 + 40).json)["model"]["merges"]
    assert [tuple(merge) for merge in merges] == twin_of_merges(words, 40)


def test_special_tokens_come_first_then_every_byte():
    content = json.loads(train_tokenizer([], 261).json)
    ids = content["model"]["vocab"]
    assert [name for name, i in sorted(ids.items(), key=lambda x: x[1])] == [*vocabulary.SPECIALS, *SORTED]
    assert content["model"]["merges"] == []


def test_texts_may_be_divided_between_lines():
    whole = "".join(TEXTS)
    assert train_tokenizer([whole], 300).json == train_tokenizer(lines_of(whole), 300).json
    assert train_tokenizer([whole], 300).json != train_tokenizer([whole, "xyz xyz xyz xyz xyz xyz"], 300).json


def test_no_token_crosses_a_lines_end():
    tokens = set(json.loads(train_tokenizer(["\n\n\n\n \n \n \n a \n\n" * 50], 400).json)["model"]["vocab"])
    assert "ĠĊ" in tokens  # a blank before a line feed may join it, nothing after it
    assert not any("Ċ" in token[:-1] for token in tokens)


def test_the_same_texts_give_the_same_vocabulary_in_another_process():
    code = "from sbmt.experiments.data.language.tokenizer import *; import sys;"
    code += "from tests.experiments.data.language.test_vocabulary import TEXTS;"
    code += "sys.stdout.write(train_tokenizer(TEXTS * 9, 320).json)"
    other = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        cwd=Path(__file__).parents[4],
        env=os.environ | {"RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "3"},
        check=True,
        capture_output=True,
    )
    content = train_tokenizer(TEXTS * 9, 320).json
    assert other.stdout.decode() == content
    assert hashlib.sha256(content.encode()).hexdigest() == GOLDEN


@pytest.mark.bad_input
def test_a_vocabulary_needs_room_for_every_byte():
    with pytest.raises(SbmtError, match="vocab_size ≥ 261"):
        train_tokenizer(TEXTS, 260)


def test_errors_of_the_texts_come_through():
    def texts():
        yield "one"
        raise SbmtError("text", "none", "mend it")

    with pytest.raises(SbmtError, match="mend it"):
        train_tokenizer(texts(), 300)


def test_a_missing_library_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(SbmtError, match="pip install tokenizers"):
        train_tokenizer(TEXTS, 300)


def test_the_library_is_loaded_when_it_is_needed():
    code = "import sys; from sbmt.experiments.data.language import tokenizer, corpus, masked_blocks;"
    code += "sys.exit('tokenizers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[4], check=True)
