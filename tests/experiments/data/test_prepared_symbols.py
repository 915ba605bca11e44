"""What sources may have beyond bytes in three splits: wider symbols, files beside the examples, further splits."""

import json

import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared, prepare
from sbmt.experiments.data.source import SPLITS, Examples
from tests.experiments.data.test_prepared import content, counting, fill_disk
from tests.experiments.data.toy import SIZES, toy_examples, toy_source


def wide(kind):
    """Symbols up to the largest of a type."""

    def make(task, n, number):
        rng = np.random.default_rng([n, number])
        lengths = rng.integers(0, 6, (n, 1))
        symbols = rng.integers(0, np.iinfo(kind).max, lengths.sum(), kind, endpoint=True)
        return Examples(symbols, lengths, rng.integers(0, 2, n))

    return make


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32"])
def test_symbols_of_every_width_come_back(tmp_path, kind):
    make = wide(kind)
    prepared = prepare(toy_source(make=make, symbol_type=kind), tmp_path)
    assert prepared.info["symbol_type"] == kind
    train = prepared.splits["train"]
    assert isinstance(train.symbols, np.memmap) and train.symbols.dtype == kind
    parts = [make("listops", n, i) for i, (name, n) in enumerate(SIZES.items()) if name.startswith("train")]
    documents = [document for i in range(len(train)) for document in train.documents(i)]
    assert [len(document) for document in documents] == np.concatenate(
        [part.lengths for part in parts]
    ).ravel().tolist()
    assert np.concatenate(documents).tolist() == [x for part in parts for x in part.symbols.tolist()]


@pytest.mark.bad_input
def test_a_shard_of_another_width_is_refused(tmp_path):
    with pytest.raises(SbmtError, match="uint16 symbols in every shard, got uint32"):
        prepare(toy_source(make=wide("uint32"), symbol_type="uint16"), tmp_path)
    assert not (tmp_path / "toy-listops").exists()


def test_what_was_prepared_when_there_were_only_bytes_still_opens(tmp_path):
    folder = prepare(toy_source(), tmp_path).folder
    info = json.loads((folder / "info.json").read_text())
    assert info["fingerprint"] == {
        "task": "listops",
        "origin": "generated",
        "class_names": ["fewer", "more"],
        "vocab_size": 6,
        "first_id": 1,
        "settings": {"seed": 0},
        "shards": 5,
    }
    for name in ("symbol_type", "checksum", "files"):  # as older versions wrote it
        del info[name]
    (folder / "info.json").write_text(json.dumps(info))
    make = counting()
    opened = prepare(toy_source(make=make), tmp_path)
    assert make.calls == [] and opened.info == info
    assert opened.splits["dev"].symbols.dtype == np.uint8
    assert opened.splits["dev"].labels.tolist() == toy_examples("listops", SIZES["dev"], 3).labels.tolist()


def test_symbols_of_another_width_are_other_examples(tmp_path):
    prepare(toy_source(make=wide("uint16"), symbol_type="uint16"), tmp_path)
    with pytest.raises(SbmtError, match="replace them"):
        prepare(toy_source(make=wide("uint32"), symbol_type="uint32"), tmp_path)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "change",
    [{"symbol_type": "float64"}, {"symbol_type": "object"}, {"symbol_type": "uint32"}, {"splits": ["train", "dev"]}],
)
def test_damage_to_what_says_the_width_or_the_splits_is_told(tmp_path, change):
    folder = prepare(toy_source(make=wide("uint16"), symbol_type="uint16"), tmp_path).folder
    info = json.loads((folder / "info.json").read_text())
    (folder / "info.json").write_text(json.dumps(info | change))
    with pytest.raises(SbmtError):
        open_prepared(folder)


def test_files_lie_beside_the_examples(tmp_path):
    files = {"tokenizer.json": '{"é": 1}\n', "notes.txt": ""}
    folder = prepare(toy_source(files=files), tmp_path / "with").folder
    for name, text in files.items():
        assert (folder / name).read_bytes() == text.encode()
    without = content(prepare(toy_source(), tmp_path / "without").folder)
    assert {name for name in without if without[name] != content(folder)[name]} == {"info.json"}  # with their checksums
    assert set(content(folder)) == {*without, *files}
    make = counting()
    prepare(toy_source(make=make), tmp_path / "with")
    assert make.calls == []


def test_a_full_disk_leaves_no_file_without_its_examples(tmp_path, monkeypatch):
    source = toy_source(files={"tokenizer.json": "{}"})
    with monkeypatch.context() as patch:
        writes = fill_disk(patch, at=1000)
        whole = content(prepare(source, tmp_path / "whole").folder)
    assert writes[-2:] == ["fsync", "fsync"]  # the file, then what makes the folder whole
    with monkeypatch.context() as patch:
        fill_disk(patch, at=len(writes) - 2)
        with pytest.raises(SbmtError, match="No space left"):
            prepare(source, tmp_path / "cache")
    assert not (tmp_path / "cache" / "toy-listops").exists()
    assert content(prepare(source, tmp_path / "cache").folder) == whole


def test_further_splits_come_back_in_order(tmp_path):
    sizes = {"zebra": 4, **SIZES, "mismatched": 6}
    prepared = prepare(toy_source(sizes=sizes), tmp_path)
    assert list(prepared.splits) == list(prepared.info["splits"]) == [*SPLITS, "zebra", "mismatched"]
    for number, (name, n) in enumerate(sizes.items()):
        if name in ("zebra", "mismatched"):
            made = toy_examples("listops", n, number)
            assert prepared.splits[name].labels.tolist() == made.labels.tolist()
            assert prepared.splits[name].extras["weight"].tolist() == made.extras["weight"].tolist()
    assert prepared.info["splits"]["mismatched"]["n_examples"] == 6
