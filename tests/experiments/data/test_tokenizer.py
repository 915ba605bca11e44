"""A tokeniser restores every text, and unsuitable files are rejected."""

import hashlib
import json
import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbmt import SbmtError
from sbmt.experiments.data.tokenizer import SPECIALS, Tokenizer, train_tokenizer

TEXT = "the cat sat on the mat, and the cat ate\nthe rat — größer als 12\n\n  that the mat\n" * 3
OWN = train_tokenizer([TEXT], 290)
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    st.sampled_from("the cat <s>/mask>\n\r\t  é—1'")
).map(lambda text: text.replace("/", "</s>"))


@given(text=TEXTS)
@example(text="")
@example(text="<s>a</s> <pad><unk> <mask> .  <mask>")
@example(text="".join(map(chr, range(0x300))) + "\ufeff\u2028\u2029\U0010ffff")
def test_ids_give_back_their_text(text):
    ids = OWN.encode(text)
    assert OWN.decode(ids) == text
    assert ids.dtype == np.uint16 and not set(ids.tolist()) & set(OWN.special_ids)


def test_glyphs_show_blanks_and_broken_characters():
    assert [OWN.glyph(i) for i in OWN.encode("the cat\n").tolist()] == ["the", "␣cat", "↵"]
    assert "".join(OWN.glyph(i) for i in OWN.encode("€").tolist()) == r"\xe2\x82\xac"
    glyphs = [OWN.glyph(i) for i in range(OWN.vocab_size)]
    assert all(sign and sign.isprintable() for sign in glyphs) and len(set(glyphs)) == len(glyphs)


APART = Tokenizer(OWN.json)  # never packs


def cut(texts, room):
    """Returns the ids of one or two texts. The longer text loses its last token first."""
    parts = [APART.encode(text).tolist() for text in texts]
    shorter = min(range(len(parts)), key=lambda i: len(parts[i]))
    n_tokens = sum(map(len, parts))
    while sum(map(len, parts)) > room:
        parts[max(range(len(parts)), key=lambda i: (len(parts[i]), i == shorter))].pop()
    return parts, n_tokens > room


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4), st.integers(6, 40))
@example([("the cat sat on the mat", "and the cat ate")], 6)
def test_texts_and_pairs_are_packed_and_cut(pairs, length):
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    packed, n_cut = OWN.pack(first, second, length)
    expected = [cut(pair, length - 4) for pair in pairs]
    assert [ids.tolist() for ids in packed] == [[0, *a, 2, 2, *b, 2] for (a, b), _ in expected]
    assert n_cut == sum(is_cut for _, is_cut in expected)
    packed, n_cut = OWN.pack(first, None, length)
    expected = [cut([a], length - 2) for a in first]
    assert [ids.tolist() for ids in packed] == [[0, *a, 2] for (a,), _ in expected]
    assert n_cut == sum(is_cut for _, is_cut in expected)
    assert all(OWN.encode(a).tolist() == APART.encode(a).tolist() for a in first)  # packing has no later effect


SENTENCES = ["the cat sat on the mat\nthe cat ate the rat\n", "die Straße, größer als 1234567\n\n\nthe end"]
GOLDEN = "f8368a503c8a86e0be686bfe0dfa57c5fc779a36a6c19c8fb27024b33ba51f39"
"""SHA-256 of the vocabulary of 320 tokens, trained on these texts nine times with tokenizers 0.23."""


def test_the_same_texts_give_the_same_vocabulary():
    assert hashlib.sha256(train_tokenizer(SENTENCES * 9, 320).json.encode()).hexdigest() == GOLDEN


def test_tokenisers_are_saved_and_copied(tmp_path):
    path = tmp_path / "folder" / "tokenizer.json"
    OWN.save(path)
    for copy in (Tokenizer.load(path), pickle.loads(pickle.dumps(OWN))):
        assert copy == OWN and copy.encode("the <s> cat").tolist() == OWN.encode("the <s> cat").tolist()
    assert OWN.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_special_tokens_are_found_by_name():
    """In RoBERTa's file, <mask> has the last id and absorbs the preceding blank."""
    content = json.loads(OWN.json)
    names = [name for name in content["model"]["vocab"] if name != "<mask>"] + ["<mask>"]
    content["model"]["vocab"] = {name: i for i, name in enumerate(names)}
    for token in content["added_tokens"]:
        token["id"], token["lstrip"] = names.index(token["content"]), token["content"] == "<mask>"
    roberta = Tokenizer(json.dumps(content))
    assert OWN.special_ids == (0, 1, 2, 3, 4) and roberta.special_ids == (0, 1, 2, 3, 289)
    assert tuple(roberta.glyph(i) for i in roberta.special_ids) == SPECIALS
    assert roberta.decode([0, *roberta.encode("the <mask> cat").tolist(), 289, 2]) == "the <mask> cat"


def with_vocabulary(**more):
    content = json.loads(OWN.json)
    content["model"]["vocab"] |= more
    return json.dumps(content)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "\udcff",
        OWN.json.replace("<s>", "<x>"),
        OWN.json.replace("Ġ", "_"),
        with_vocabulary(far=1 << 30),
        OWN.json.replace('"dropout":null', '"dropout":0.1'),
        OWN.json.replace('"normalizer":null', '"normalizer":{"type": "Precompiled", "precompiled_charsmap": "AAAA"}'),
    ],
)
def test_other_tokenisers_are_refused(tmp_path, capfd, content):
    (tmp_path / "tokenizer.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(SbmtError, match="tokeniser"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.bad_input
def test_what_has_no_ids_or_no_text_is_refused():
    for refused in (lambda: OWN.glyph(290), lambda: OWN.decode([5, -1])):
        with pytest.raises(SbmtError, match=r"ids in \[0, 290\)"):
            refused()
    for refused in (lambda: OWN.encode("a\ud800"), lambda: OWN.pack(["a\ud800"], None, 9)):
        with pytest.raises(SbmtError, match="lone surrogates"):
            refused()
    with pytest.raises(SbmtError, match="vocab_size from 261"):
        train_tokenizer(SENTENCES, 260)
