from dataclasses import replace

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.glue import sentence_pairs
from sbmt.experiments.data.glue.files import glue_files
from sbmt.experiments.data.glue.sentence_pairs import encode_split
from sbmt.experiments.data.glue.tasks import GLUE
from sbmt.experiments.data.language.tokenizer import train_tokenizer
from sbmt.experiments.data.prepared import Split, prepare
from tests.experiments.data.glue.layout import DEV_MNLI, table

pytest.importorskip("tokenizers")  # an extra

WORDS = ["the", "film", "is", "good", "naïve", "漢字", '"quoted"', "<s>", "</s>", "  ", "was", "not", "seen\u0085", ""]


def sentence(rng, n):
    return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), n).tolist())


@pytest.fixture(scope="module")
def tokenizer():
    rng = np.random.default_rng(0)
    return train_tokenizer([sentence(rng, 12) for _ in range(200)], 300)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Sentences and pairs of up to 40 words, of training 90 and of every dev table 12."""
    folder = tmp_path_factory.mktemp("glue")
    made = {}
    for task, stems in (("sst2", ("train", "dev")), ("mnli", ("train", "dev_matched", "dev_mismatched"))):
        (folder / task).mkdir()
        for seed, stem in enumerate(stems):
            rng = np.random.default_rng([1, seed])
            n = 90 if stem == "train" else 12
            pairs = [tuple(sentence(rng, k) for k in rng.integers(0, 40, len(GLUE[task].texts))) for _ in range(n)]
            labels = [GLUE[task].written[i] for i in rng.integers(0, len(GLUE[task].written), n)]
            columns = DEV_MNLI if stem.startswith("dev_m") else None
            (folder / task / f"{stem}.tsv").write_bytes(table(task, pairs, labels, columns))
        made[task] = prepare(glue_files(task, folder / task), folder / "cache")
    return made


def naive(split, tokenizer, length):
    """Ids of every example, packed one at a time, and the number of those that were cut."""
    examples, n_cut = [], 0
    for example in range(len(split)):
        first, *second = ([bytes(document).decode()] for document in split.documents(example))
        (ids,), is_cut = tokenizer.pack(first, *(second or [None]), length)
        examples.append(ids.tolist())
        n_cut += is_cut
    return examples, n_cut


@pytest.mark.parametrize("task, length, chunk", [("sst2", 9, 7), ("mnli", 9, 1), ("mnli", 40, 4096)])
def test_examples_are_packed_in_their_order(prepared, tokenizer, monkeypatch, task, length, chunk):
    monkeypatch.setattr(sentence_pairs, "CHUNK", chunk)
    for name, split in prepared[task].splits.items():
        encoded, n_cut = encode_split(split, tokenizer, length)
        wanted, wanted_cut = naive(split, tokenizer, length)
        documents = [encoded.documents(example) for example in range(len(encoded))]
        assert [[ids.tolist() for ids in row] for row in documents] == [[ids] for ids in wanted], name
        assert n_cut == wanted_cut and encoded.labels.tolist() == split.labels.tolist()
        assert encoded.extras is split.extras
        assert encoded.symbols.dtype == np.uint16
        lengths = encoded.lengths[encoded.indices].sum(1).tolist()
        assert lengths == [len(ids) for ids in wanted] and max(lengths) <= length


def test_empty_texts_and_empty_splits(tokenizer):
    nothing = Split(*(np.empty(0, np.int64),) * 2, np.empty(0, np.uint8), *(np.empty((0, 1), np.int64),) * 2, {})
    encoded, n_cut = encode_split(nothing, tokenizer, 8)
    assert (len(encoded), encoded.symbols.dtype, n_cut) == (0, np.uint16, 0)
    pair = Split(np.arange(1), np.zeros(1, np.int64), nothing.symbols, *(np.zeros((1, 2), np.int64),) * 2, {})
    start, end = tokenizer.start_id, tokenizer.end_id
    assert encode_split(pair, tokenizer, 8)[0].documents(0)[0].tolist() == [start, end, end, end]


def test_what_is_no_text_is_refused(prepared, tokenizer):
    split = prepared["mnli"].splits["test"]
    with pytest.raises(SbmtError, match="documents in UTF-8"):
        encode_split(replace(split, symbols=np.full_like(split.symbols, 0xFF)), tokenizer, 20)
    encoded, _ = encode_split(split, tokenizer, 20)
    with pytest.raises(SbmtError, match="one document or two of bytes, got 1 of uint16"):
        encode_split(encoded, tokenizer, 20)
    three = np.zeros((1, 3), np.int64)
    with pytest.raises(SbmtError, match="got 3 of uint8"):
        encode_split(replace(split, indices=np.arange(1), lengths=three, offsets=three), tokenizer, 20)
    with pytest.raises(SbmtError, match="length ≥"):
        encode_split(split, tokenizer, 3)
