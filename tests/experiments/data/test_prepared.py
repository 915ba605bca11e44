"""Prepared examples are whole or not there, whatever happens on the way."""

import errno
import itertools
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared, prepare
from sbmt.experiments.data.source import SPLITS, Examples, by_shard
from tests.experiments.data.toy import SIZES, toy_examples, toy_source


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def counting(make=toy_examples, fail_at=None):
    """A shard's maker that counts its calls, and raises in the call numbered ``fail_at``."""

    def counted(task, n, number):
        counted.calls.append(number)
        if len(counted.calls) - 1 == fail_at:
            raise KeyboardInterrupt
        return make(task, n, number)

    counted.calls = []
    return counted


def wide(kind):
    """Symbols up to the largest of a type; some documents are empty."""

    def make(task, n, number):
        rng = np.random.default_rng([n, number])
        lengths = rng.integers(0, 6, (n, 1))
        symbols = rng.integers(0, np.iinfo(kind).max, lengths.sum(), kind, endpoint=True)
        return Examples(symbols, lengths, rng.integers(0, 2, n))

    return make


@pytest.mark.parametrize("task, kind", [("retrieval", ""), ("image", ""), ("text", "uint16"), ("text", "uint32")])
def test_examples_come_back_as_they_were_made(tmp_path, task, kind):
    make = wide(kind) if kind else toy_examples
    prepared = prepare(toy_source(task, make=make, symbol_type=kind or "uint8"), tmp_path)
    for split in SPLITS:
        parts = [make(task, n, i) for i, (name, n) in enumerate(SIZES.items()) if name.startswith(split)]
        found = prepared.splits[split]
        assert all(isinstance(x, np.memmap) for x in (found.symbols, found.offsets, found.lengths, found.indices))
        with pytest.raises(ValueError, match="read-only"):
            found.symbols[0] = 1
        documents = [document for i in range(len(found)) for document in found.documents(i)]
        assert [len(document) for document in documents] == [n for part in parts for n in part.lengths.ravel()]
        assert np.concatenate(documents).tolist() == [x for part in parts for x in part.symbols.tolist()]
        assert found.symbols.dtype == prepared.info["symbol_type"] == (kind or "uint8")
        assert found.labels.tolist() == [y for part in parts for y in part.labels.tolist()]
        for name, extra in found.extras.items():
            assert extra.tolist() == [x for part in parts for x in part.extras[name].tolist()]
    assert prepared.info["extras"] == ([] if kind or task == "image" else ["weight"])


def test_info_describes_the_examples(tmp_path):
    source = toy_source(settings={"seed": 0, "nested": [1, {"a": None}]})
    prepared = prepare(source, tmp_path)
    info = prepared.info
    assert info == json.loads((tmp_path / source.name / "info.json").read_text())
    assert (info["task"], info["origin"], info["vocab_size"], info["first_id"]) == ("listops", "generated", 6, 1)
    assert info["n_examples"] == sum(SIZES.values()) and info["n_documents"] == 1
    assert info["settings"] == source.settings
    assert "symbol_type" not in info["fingerprint"]  # as long as symbols are bytes: what was prepared stays valid
    for split, about in info["splits"].items():
        found = prepared.splits[split]
        lengths = np.array([len(document) for i in range(len(found)) for document in found.documents(i)])
        assert about["n_examples"] == len(found)
        assert about["balance"] == {"fewer": (found.labels == 0).sum(), "more": (found.labels == 1).sum()}
        assert about["lengths"]["mean"] == pytest.approx(lengths.mean(), abs=0.05)
        assert about["lengths"]["median"] == np.median(lengths)
        assert about["lengths"]["p90"] == pytest.approx(np.percentile(lengths, 90))
        assert (about["lengths"]["min"], about["lengths"]["max"]) == (lengths.min(), lengths.max())


def test_the_same_source_gives_the_same_bytes_and_is_not_made_again(tmp_path):
    files = {"tokenizer.json": '{"é": 1}\n', "notes.txt": ""}
    first, second, without = (
        prepare(toy_source(files=given), tmp_path / name) for name, given in (("a", files), ("b", files), ("c", {}))
    )
    assert content(first.folder) == content(second.folder)
    same = {name: value for name, value in content(without.folder).items() if name != "info.json"}  # with checksums
    beside = {name: text.encode() for name, text in files.items()}
    assert content(first.folder) == same | beside | {"info.json": content(first.folder)["info.json"]}
    make = counting()
    prepare(toy_source(make=make, files=files), tmp_path / "a")
    assert make.calls == []
    other = prepare(toy_source(make=lambda task, n, i: toy_examples(task, n, i + 9)), tmp_path / "d")
    assert other.info["sha256"] != first.info["sha256"] == without.info["sha256"]


def test_an_interruption_costs_one_shard(tmp_path):
    whole = content(prepare(toy_source(), tmp_path / "whole").folder)
    first, second = counting(fail_at=3), counting()
    with pytest.raises(KeyboardInterrupt):
        prepare(toy_source(make=first), tmp_path / "cache")
    with pytest.raises(SbmtError, match="prepared examples in"):
        open_prepared(tmp_path / "cache" / "toy-listops")
    (tmp_path / "cache" / ".toy-listops.part" / ".shard-dev.npz.x.part").touch()  # left by a process that was killed
    reports = []
    prepared = prepare(toy_source(make=second), tmp_path / "cache", report=lambda *given: reports.append(given))
    assert first.calls == [0, 1, 2, 3] and second.calls == [3, 4]
    assert reports == [(done, len(SIZES)) for done in range(len(SIZES) + 1)]
    assert content(prepared.folder) == whole
    assert os.listdir(tmp_path / "cache") == ["toy-listops"]


def test_shards_of_other_settings_are_not_taken_over(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        prepare(toy_source(make=counting(fail_at=3)), tmp_path)
    make = counting()
    prepare(toy_source(make=make, settings={"seed": 1}), tmp_path)
    assert make.calls == list(range(len(SIZES)))


@pytest.mark.bad_input
@pytest.mark.parametrize("change", [{"settings": {"seed": 1}}, {"symbol_type": "uint16"}])
def test_other_examples_of_the_same_name_are_refused_or_replaced(tmp_path, change):
    before = content(prepare(toy_source(), tmp_path).folder)
    make = counting(wide(change.get("symbol_type", "uint8")))
    other = toy_source(make=make, **change)
    with pytest.raises(SbmtError, match="replace them"):
        prepare(other, tmp_path)
    assert make.calls == [] and content(tmp_path / "toy-listops") == before
    prepared = prepare(other, tmp_path, is_replaced=True)
    name, value = next(iter(change.items()))
    assert prepared.info[name] == value and make.calls == list(range(len(SIZES)))


@pytest.mark.parametrize("at", [0, 6, 7])  # the first of seven arrays, the last one, the rename of the folder
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, at):
    """While the shards are put together. At other writes: see ``tests/faults/test_interrupted.py``."""
    calls = itertools.count()

    def fail(function, *arguments, **keywords):
        if next(calls) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*arguments, **keywords)

    with monkeypatch.context() as patch:
        for module, name in ((np, "save"), (os, "rename")):
            patch.setattr(module, name, partial(fail, getattr(module, name)))
        with pytest.raises(SbmtError, match="No space left"):
            prepare(toy_source(), tmp_path / "cache")
    assert not (tmp_path / "cache" / "toy-listops").exists()
    make = counting()
    prepared = prepare(toy_source(make=make), tmp_path / "cache")
    assert make.calls == []  # what was written before is kept
    assert content(prepared.folder) == content(prepare(toy_source(), tmp_path / "whole").folder)


def changed(**entries):
    """Replaces entries of ``info.json``, and drops its checksum."""

    def change(path):
        info = json.loads(path.read_text()) | entries
        del info["checksum"]
        path.write_text(json.dumps(info))

    return change


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "name, damage",
    [
        ("symbols.bin", Path.unlink),
        ("offsets.npy", lambda path: np.save(path, np.array([{"a": 1}]), allow_pickle=True)),
        ("info.json", changed(format=0)),
        ("info.json", changed(symbol_type="uint32")),
        ("info.json", changed(symbol_type="object")),
        ("info.json", changed(splits=["train", "dev"])),
    ],
)
def test_damage_is_told_even_where_nothing_is_compared_with_a_checksum(tmp_path, name, damage):
    """Where it is compared: see ``tests/faults/test_damaged_files.py``."""
    folder = prepare(toy_source(), tmp_path).folder
    damage(folder / name)
    for is_checked in (True, False):
        with pytest.raises(SbmtError):
            open_prepared(folder, is_checked=is_checked)


@pytest.mark.bad_input
def test_nothing_prepared_says_how_to(tmp_path):
    with pytest.raises(SbmtError, match="sbmt data prepare listops"):
        open_prepared(tmp_path / "listops-reduced")
    with pytest.raises(SbmtError, match="sbmt data list") as error:
        open_prepared(tmp_path / "nope")
    assert "sbmt data prepare" not in str(error.value)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (toy_source(sizes={"train": 4, "test": 3}), "examples in every split"),
        (toy_source(class_names=("fewer",)), r"labels in \[0, 1\)"),
        (toy_source(make=lambda task, n, i: Examples.of([(b"a",)] * n, [-1] * n)), r"labels in \[0, 2\)"),
        (toy_source(make=lambda task, n, i: Examples.of([], [])), "at least one example"),
        (toy_source(arrange=lambda pool: {"train": pool.labels, "dev": pool.labels}), "none named test"),
        (toy_source(arrange=lambda pool: by_shard(pool) | {"../dev": pool.labels}), "letters, digits and _"),
        (toy_source(make=wide("uint32"), symbol_type="uint16"), "uint16 symbols in every shard, got uint32"),
    ],
)
def test_examples_that_make_no_task_are_refused(tmp_path, source, words):
    with pytest.raises(SbmtError, match=words):
        prepare(source, tmp_path)
    assert not (tmp_path / source.name).exists()


def test_all_documents_may_be_empty(tmp_path):
    nothing = toy_source(make=lambda task, n, i: Examples.of([(b"",)], [0]))
    assert prepare(nothing, tmp_path).splits["dev"].documents(0)[0].size == 0
