import hashlib
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from sbmt import SbmtError
from sbmt.experiments.data.language import tokenizer as module
from sbmt.experiments.data.language.tokenizer import SPECIALS, Tokenizer, lines_of, train_tokenizer

TEXT = "the cat sat on the mat, and the cat ate\nthe rat — größer als 12\n\n  that the mat\n" * 3
OWN = train_tokenizer([TEXT], 290)


def as_of_roberta(**changes):
    """The same merges in the layout of RoBERTa's file: ``<mask>`` last, blanks before it its own, a template."""
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
    for ids in (tokenizer.encode(text), tokenizer.encode_lines(text)):
        assert tokenizer.decode(ids) == text
        assert ids.dtype == np.uint16 and not set(ids.tolist()) & set(tokenizer.special_ids)


@given(text=TEXTS)
def test_ids_are_those_of_the_library(text):
    library = tokenizers.Tokenizer.from_str(OWN.json)
    library.encode_special_tokens = True
    assert OWN.encode(text).tolist() == library.encode(text, add_special_tokens=False).ids


@given(text=TEXTS)
def test_lines_are_encoded_by_themselves(text):
    ids = [i for line in lines_of(text) for i in OWN.encode(line).tolist()]
    assert OWN.encode_lines(text).tolist() == ids


def test_blanks_round_a_line_feed_show_the_difference():
    tokenizer = train_tokenizer([" \n \n \n" * 9], 262)
    assert [tokenizer.glyph(i) for i in tokenizer.encode_lines(" \nb").tolist()] == ["␣↵", "b"]
    assert [tokenizer.glyph(i) for i in tokenizer.encode(" \nb").tolist()] == ["␣", "↵", "b"]


def test_texts_are_encoded_in_batches_without_a_trace(monkeypatch):
    texts = ["the cat", "", "sat", "on" * 40, "é", ""] * 5
    alone = [OWN.encode(text).tolist() for text in texts]
    for size in (1, 7, 100, 10**6):
        monkeypatch.setattr(module, "CHUNK_CHARACTERS", size)
        assert [ids.tolist() for ids in OWN.encode_each(texts)] == alone
    assert list(OWN.encode_each([])) == []


@pytest.mark.parametrize(
    ("tokenizer", "ids"), [(OWN, (0, 1, 2, 3, 4)), (ROBERTA, (0, 1, 2, 3, 289))], ids=["own", "RoBERTa's layout"]
)
def test_special_tokens_are_found_by_name(tokenizer, ids):
    assert tokenizer.special_ids == ids and tokenizer.vocab_size == 290
    named = "start_id", "padding_id", "end_id", "unknown_id", "mask_id"
    assert tuple(getattr(tokenizer, name) for name in named) == ids
    assert tuple(tokenizer.glyph(i) for i in ids) == SPECIALS
    assert tokenizer.decode([ids[0], *tokenizer.encode("the cat").tolist(), ids[4], ids[2]]) == "the cat"


def test_glyphs_show_blanks_and_broken_characters():
    assert [OWN.glyph(i) for i in OWN.encode("the cat\n").tolist()] == ["the", "␣cat", "↵"]
    assert "".join(OWN.glyph(i) for i in OWN.encode("€").tolist()) == r"\xe2\x82\xac"
    glyphs = [OWN.glyph(i) for i in range(OWN.vocab_size)]
    assert all(glyph and glyph.isprintable() for glyph in glyphs) and len(set(glyphs)) == len(glyphs)


def test_texts_and_pairs_are_packed():
    first, second = ["the cat sat", "the", ""], ["on the mat", "", "the rat"]
    a, b = ([OWN.encode(text).tolist() for text in texts] for texts in (first, second))
    packed, n_cut = OWN.pack(first, second, 99)
    assert [p.tolist() for p in packed] == [[0, *x, 2, 2, *y, 2] for x, y in zip(a, b, strict=True)] and n_cut == 0
    packed, n_cut = OWN.pack(first, None, 4)
    assert [p.tolist() for p in packed] == [[0, *x[:2], 2] for x in a] and n_cut == 1
    assert OWN.pack([], None, 3) == OWN.pack([], [], 6) == ([], 0)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("second", "length", "words"),
    [(None, 2, "length ≥ 3"), (["a"], 5, "length ≥ 6"), (["a", "b"], 9, "one per first")],
)
def test_what_cannot_be_packed_is_refused(second, length, words):
    with pytest.raises(SbmtError, match=words):
        OWN.pack(["a"], second, length)


@BOTH
def test_tokenisers_are_saved_copied_and_compared(tokenizer, tmp_path):
    path = tmp_path / "folder" / "tokenizer.json"
    tokenizer.save(path)
    text = "the <s> cat <mask>"
    for copy in (Tokenizer.load(path), pickle.loads(pickle.dumps(tokenizer)), Tokenizer(tokenizer.json)):
        assert copy == tokenizer and copy.encode(text).tolist() == tokenizer.encode(text).tolist()
    assert tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(pickle.dumps(tokenizer)) < len(path.read_bytes()) + 200
    assert str(tokenizer) == f"Tokenizer(290 tokens, sha256 {tokenizer.sha256[:12]}…)"
    assert OWN != ROBERTA and replace(OWN, json=ROBERTA.json) == ROBERTA


def test_many_tokens_need_wider_ids():
    content = json.loads(OWN.json)
    content["model"]["vocab"] |= {f"x{i}": i for i in range(290, 65_536)}
    assert Tokenizer(json.dumps(content)).id_type == "uint16"
    content["model"]["vocab"]["x65536"] = 65_536
    large = Tokenizer(json.dumps(content))
    assert large.encode("the cat").dtype == np.uint32 and large.vocab_size == 65_537


def changed(**model):
    content = json.loads(OWN.json)
    return json.dumps(content | {"model": content["model"] | model})


def without(*names):
    content = json.loads(OWN.json)
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in names]
    for name in names:
        del content["model"]["vocab"][name]
    return json.dumps(content)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the JSON of a tokeniser"),
        ("[]", "the JSON of a tokeniser"),
        (OWN.json[:-9], "the JSON of a tokeniser"),
        (changed(type="Unigrams"), "the JSON of a tokeniser"),
        (without("<mask>"), "one without <mask>"),
        (without("<s>", "</s>"), "one without <s>, </s>"),
        (as_of_roberta(decoder=None), "gives back its text"),
        (as_of_roberta(normalizer={"type": "Lowercase"}), "gives back its text"),
        (as_of_roberta(normalizer={"type": "NFC"}), "gives back its text"),
        (as_of_roberta(pre_tokenizer={"type": "Whitespace"}), "gives back its text"),
    ],
)
def test_other_tokenisers_are_refused(tmp_path, content, words):
    with pytest.raises(SbmtError, match=words):
        Tokenizer(content)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(SbmtError, match=words):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.bad_input
def test_files_that_hold_no_text_are_refused(tmp_path):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "binary.json", tmp_path / "none.json", tmp_path):
        with pytest.raises(SbmtError, match="a tokeniser in"):
            Tokenizer.load(path)


@pytest.mark.bad_input
@pytest.mark.parametrize("token", [-1, 290, 10**9])
def test_ids_beyond_the_vocabulary_are_refused(token):
    with pytest.raises(SbmtError, match=r"in \[0, 290\)"):
        OWN.glyph(token)
    with pytest.raises(SbmtError, match=r"in \[0, 290\)"):
        OWN.decode([5, token])


@pytest.mark.bad_input
def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(SbmtError, match="lone surrogates"):
        OWN.encode("a\ud800")


def test_an_id_without_a_token_is_refused():
    content = json.loads(OWN.json)
    content["model"]["vocab"]["far"] = 400
    with pytest.raises(SbmtError, match="an id in"):
        Tokenizer(json.dumps(content)).glyph(350)


def test_real_text_comes_back(shared_data):
    import gzip

    path: Path = shared_data / "lm" / "wikitext-2.valid.txt.gz"
    if not path.exists():
        pytest.skip("lm/wikitext-2.valid.txt.gz is not there")
    text = gzip.open(path).read().decode()
    tokenizer = train_tokenizer([text], 2000)
    ids = tokenizer.encode_lines(text)
    assert tokenizer.vocab_size == 2000 and tokenizer.decode(ids) == text
    assert len(text) / len(ids) > 3  # characters per token
    assert tokenizer.unknown_id not in ids and "<unk>" in text
