"""A tokeniser gives back every text; other files than those it needs are refused."""

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


def as_of_roberta(**changes):
    """The same merges in the layout of RoBERTa's file: ``<mask>`` last and with its own blank before it, a template."""
    content = json.loads(OWN.json)
    names = [name for name in content["model"]["vocab"] if name != "<mask>"] + ["<mask>"]
    ids = {name: i for i, name in enumerate(names)}
    added = [
        {"id": ids[name], "content": name, "single_word": False, "lstrip": name == "<mask>", "rstrip": False}
        | {"normalized": True, "special": True}
        for name in SPECIALS
    ]
    template = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True}
    content |= {"added_tokens": added, "post_processor": template | {"add_prefix_space": False}}
    content |= {"truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}}
    content["model"]["vocab"] = ids
    return json.dumps(content | changes)


ROBERTA = Tokenizer(as_of_roberta())
BOTH = pytest.mark.parametrize("tokenizer", [OWN, ROBERTA], ids=["own", "RoBERTa's layout"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    st.sampled_from("the cat <s>/mask>\n\r\t  é—1'")
).map(lambda text: text.replace("/", "</s>"))


@BOTH
@given(text=TEXTS)
@example(text="")
@example(text="<s>a</s> <pad><unk> <mask> .  <mask>")
@example(text="".join(map(chr, range(0x300))) + "\ufeff\u2028\u2029\U0010ffff")
def test_ids_give_back_their_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids.dtype == np.uint16 and not set(ids.tolist()) & set(tokenizer.special_ids)


@pytest.mark.parametrize(
    ("tokenizer", "ids"), [(OWN, (0, 1, 2, 3, 4)), (ROBERTA, (0, 1, 2, 3, 289))], ids=["own", "RoBERTa's layout"]
)
def test_special_tokens_are_found_by_name(tokenizer, ids):
    assert tokenizer.special_ids == ids and tokenizer.vocab_size == 290
    assert (tokenizer.start_id, tokenizer.padding_id, tokenizer.end_id, tokenizer.mask_id) == (0, 1, 2, ids[4])
    assert tuple(tokenizer.glyph(i) for i in ids) == SPECIALS
    assert tokenizer.decode([ids[0], *tokenizer.encode("the cat").tolist(), ids[4], ids[2]]) == "the cat"


def test_glyphs_show_blanks_and_broken_characters():
    assert [OWN.glyph(i) for i in OWN.encode("the cat\n").tolist()] == ["the", "␣cat", "↵"]
    assert "".join(OWN.glyph(i) for i in OWN.encode("€").tolist()) == r"\xe2\x82\xac"
    glyphs = [OWN.glyph(i) for i in range(OWN.vocab_size)]
    assert all(sign and sign.isprintable() for sign in glyphs) and len(set(glyphs)) == len(glyphs)


APART = Tokenizer(OWN.json)  # never packs


def cut(texts, room):
    """Ids of one or two texts: the longer one loses its last token, of two alike the one that was shorter at first."""
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
    assert all(OWN.encode(a).tolist() == APART.encode(a).tolist() for a in first)  # packing leaves no trace


SENTENCES = ["the cat sat on the mat\nthe cat ate the rat\n", "die Straße, größer als 1234567\n\n\nthe end"]
GOLDEN = "f8368a503c8a86e0be686bfe0dfa57c5fc779a36a6c19c8fb27024b33ba51f39"
"""SHA-256 of the vocabulary of 320 tokens trained on nine times these texts, with tokenizers 0.23."""


def test_the_same_texts_give_the_same_vocabulary():
    assert hashlib.sha256(train_tokenizer(SENTENCES * 9, 320).json.encode()).hexdigest() == GOLDEN


@BOTH
def test_tokenisers_are_saved_and_copied(tokenizer, tmp_path):
    path = tmp_path / "folder" / "tokenizer.json"
    tokenizer.save(path)
    for copy in (Tokenizer.load(path), pickle.loads(pickle.dumps(tokenizer))):
        assert copy == tokenizer and copy.encode("the <s> cat").tolist() == tokenizer.encode("the <s> cat").tolist()
    assert tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def with_model(**changes):
    content = json.loads(OWN.json)
    content["model"] |= changes
    return json.dumps(content)


VOCAB = json.loads(OWN.json)["model"]["vocab"]


def test_large_ids_need_a_wider_type():
    assert Tokenizer(with_model(vocab=VOCAB | {"far": 65_535})).id_type == "uint16"
    large = Tokenizer(with_model(vocab=VOCAB | {"far": 65_536}))
    assert large.encode("the cat").dtype == large.pack(["the"], None, 9)[0][0].dtype == np.uint32


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "the JSON of a tokeniser"),
        (OWN.json.replace("<s>", "<x>"), "one without <s>"),
        (as_of_roberta(decoder=None), "gives back its text"),
        (as_of_roberta(normalizer={"type": "NFC"}), "gives back its text"),
        ("\udcff", "a tokeniser in .*tokenizer.json"),
        (with_model(dropout=0.5), "without dropout, got dropout 0.5"),
        (with_model(vocab=VOCAB | {"far": 1 << 30}), "ids below"),
    ],
)
def test_other_tokenisers_are_refused(tmp_path, content, words):
    (tmp_path / "tokenizer.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(SbmtError, match=words):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.bad_input
def test_what_has_no_ids_or_no_text_is_refused():
    for refused in (lambda: OWN.glyph(290), lambda: OWN.decode([5, -1])):
        with pytest.raises(SbmtError, match=r"ids in \[0, 290\)"):
            refused()
    for refused in (lambda: OWN.encode("a\ud800"), lambda: OWN.pack(["a\ud800"], None, 9)):
        with pytest.raises(SbmtError, match="lone surrogates"):
            refused()
    with pytest.raises(SbmtError, match="vocab_size ≥ 261"):
        train_tokenizer(SENTENCES, 260)
