"""Prepared examples are whole or not there, whatever happens on the way, and what is none is refused."""

import errno
import itertools
import json
import os
from functools import partial

import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data import prepared as prepared_module
from sbmt.experiments.data.prepared import open_prepared, prepare
from sbmt.experiments.data.source import SPLITS, Examples, Pool, by_part
from sbmt.experiments.files import write_json
from tests.experiments.data.toy import SIZES, toy_examples, toy_source


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def counting(make=toy_examples, fail_at=None):
    """A part's maker that counts its calls, and raises in the call numbered ``fail_at``."""

    def counted(task, n, number):
        counted.calls.append(number)
        if len(counted.calls) - 1 == fail_at:
            raise KeyboardInterrupt
        return make(task, n, number)

    counted.calls = []
    return counted


LARGE = {"vocab_size": (1 << 31) - 1, "first_id": 0}


def wide(kind):
    """Symbols up to the largest of a type; some documents are empty."""

    def make(task, n, number):
        rng = np.random.default_rng([n, number])
        lengths = rng.integers(0, 6, (n, 1))
        symbols = rng.integers(0, min(np.iinfo(kind).max, LARGE["vocab_size"] - 1), lengths.sum(), kind, endpoint=True)
        return Examples(symbols, lengths, rng.integers(0, 2, n))

    return make


@pytest.mark.parametrize("task, kind", [("retrieval", ""), ("image", ""), ("text", "uint16"), ("text", "uint32")])
def test_examples_come_back_as_they_were_made(tmp_path, task, kind):
    make = wide(kind) if kind else toy_examples
    prepared = prepare(
        toy_source(task, make=make, **LARGE if kind else {}, **{"symbol_type": kind} if kind else {}), tmp_path
    )
    for split in SPLITS:
        parts = [make(task, n, i) for i, (name, n) in enumerate(SIZES.items()) if name.startswith(split)]
        found = prepared.splits[split]
        assert all(isinstance(x, np.memmap) for x in (found.symbols, found.lengths, found.indices))
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
    assert info["n_documents"] == 1 and info["splits"] == list(SPLITS)
    assert info["settings"] == source.settings


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


@pytest.mark.bad_input
@pytest.mark.parametrize("change", [{"settings": {"seed": 1}}, {"symbol_type": "uint16"}])
def test_other_examples_of_the_same_name_are_refused_or_replaced(tmp_path, change):
    before = content(prepare(toy_source(**LARGE), tmp_path).folder)
    make = counting(wide(change.get("symbol_type", "uint8")))
    other = toy_source(make=make, **LARGE | change)
    with pytest.raises(SbmtError, match="some that differ in .*--replace"):
        prepare(other, tmp_path)
    assert make.calls == [] and content(tmp_path / "toy-listops") == before
    prepared = prepare(other, tmp_path, is_replaced=True)
    name, value = next(iter(change.items()))
    assert prepared.info[name] == value and make.calls == list(range(len(SIZES)))


@pytest.mark.parametrize("at", [0, 5, 6, 7, 8])  # some of the arrays, the description, both renames of folders
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, at):
    """At other writes: see ``tests/faults/test_interrupted.py``."""
    before = content(prepare(toy_source(), tmp_path / "cache").folder)
    calls = itertools.count()

    def fail(function, *arguments, **keywords):
        if next(calls) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*arguments, **keywords)

    other = toy_source(settings={"seed": 1})
    with monkeypatch.context() as patch:
        patch.setattr(prepared_module, "write_bytes", partial(fail, prepared_module.write_bytes))
        patch.setattr(prepared_module, "write_json", partial(fail, prepared_module.write_json))
        patch.setattr(os, "rename", partial(fail, os.rename))
        with pytest.raises(SbmtError, match="No space left"):
            prepare(other, tmp_path / "cache", is_replaced=True)
    assert content(tmp_path / "cache" / "toy-listops") == before
    found = content(prepare(other, tmp_path / "cache", is_replaced=True).folder)
    assert found == content(prepare(other, tmp_path / "whole").folder)
    assert os.listdir(tmp_path / "cache") == ["toy-listops"]


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["toy-listops", ".toy-listops.part"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_folders_that_prepare_has_not_made_are_left_alone(tmp_path, name, is_replaced):
    (tmp_path / name).mkdir()
    for file in ("notes.txt", "info.json"):
        (tmp_path / name / file).write_text('{"mine": 1}')
        with pytest.raises(SbmtError, match=f"{name} to be absent, empty, or made by this command"):
            prepare(toy_source(), tmp_path, is_replaced=is_replaced)
        assert (tmp_path / name / file).read_text() == '{"mine": 1}'


def change_info(folder, **entries):
    """Replaces entries of the description, under a checksum that fits."""
    info = json.loads((folder / "info.json").read_text())
    del info["checksum"]
    write_json(folder / "info.json", info | entries, has_checksum=True)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "entries",
    [
        {"format": 1},
        {"format": "\x1b[2J"},
        {"splits": []},
        {"splits": {"train": {}}},
        {"splits": ["train", "dev"]},
        {"splits": [1, 2, 3]},
        {"class_names": "fewer"},
        {"class_names": [1, 2]},
        {"settings": []},
        {"notes": [3]},
        {"n_documents": 1.0},
        {"vocab_size": -1},
        {"first_id": None},
        {"symbol_type": "object"},
        {"extras": ["../../weight"]},
        {"files": {}},
        {"name": None},
    ],
)  # fmt: skip
def test_a_description_that_was_edited_is_told(tmp_path, entries):
    folder = prepare(toy_source(), tmp_path).folder
    change_info(folder, **entries)
    for is_checked in (True, False):
        with pytest.raises(SbmtError) as error:
            open_prepared(folder, is_checked=is_checked)
        assert "\n" not in str(error.value) and "\x1b" not in str(error.value)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["/dev/zero", "../toy-listops/labels.npy", "pipe", "folder"])
def test_only_regular_files_of_the_folder_are_opened(tmp_path, name):
    folder = prepare(toy_source(), tmp_path).folder
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    info = json.loads((folder / "info.json").read_text())
    change_info(folder, files=info["files"] | {name: "0"})
    with pytest.raises(SbmtError, match="names of files|a regular file"):
        open_prepared(folder)
    change_info(folder, files=info["files"])
    for file in ("symbols.npy", "labels.npy", "info.json"):
        (folder / file).unlink()
        (folder / file).symlink_to("/dev/zero" if name == "/dev/zero" else folder / "pipe")
        with pytest.raises(SbmtError, match="a regular file"):
            open_prepared(folder, is_checked=False)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("labels", np.full(75, 9)),
        ("labels", np.full(75, 0.5)),
        ("lengths", np.full((75, 1), -1)),
        ("lengths", np.full((75, 1), 1 << 60)),
        ("split-dev", np.arange(70, 80)),
        ("split-dev", np.arange(10)),  # which are of train
        ("split-dev", np.array([-1])),
        ("symbols", np.zeros(3, np.int64)),
        ("labels", np.array([{"a": 1}] * 75)),
    ],
)
def test_arrays_that_do_not_fit_are_told_even_where_no_checksum_is_compared(tmp_path, name, array):
    folder = prepare(toy_source(), tmp_path).folder
    np.save(folder / f"{name}.npy", array, allow_pickle=True)
    with pytest.raises(SbmtError, match="whole examples in"):
        open_prepared(folder, is_checked=False)


def by_hand(**splits):
    """An arrangement that is given."""
    usual = {"train": [0, 1], "dev": [2], "test": [3]}
    return lambda pool: {split: np.array(rows) for split, rows in (usual | splits).items()}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(sizes={"train": 4, "test": 3}), "examples in dev, got none"),
        (dict(class_names=("fewer",)), r"labels in \[0, 1\)"),
        (dict(make=lambda task, n, i: Examples.of([(b"a",)] * n, [-1] * n)), r"labels in \[0, "),
        (dict(make=lambda task, n, i: Examples.of([], [])), "at least one example"),
        (dict(make=lambda task, n, i: Examples.of([(b"\x09",)] * n, [0] * n)), r"ids are in \[0, 6\), got 10"),
        (dict(make=wide("uint32"), symbol_type="uint16", **LARGE), "uint16 symbols, got uint32"),
        (dict(make=lambda task, n, i: Examples.of([(b"a",) * (1 + i % 2)] * n, [0] * n), **LARGE), "as many documents"),
        (dict(arrange=lambda pool: {"train": pool.labels, "dev": pool.labels}), "none named test"),
        (dict(arrange=by_hand(**{"../dev": [9]})), "letters, digits, _ and -"),
        (dict(arrange=by_hand(test=[0, 1])), "each example in one split, got example 0 in 2 places"),
        (dict(arrange=by_hand(train=[5, 5])), "each example in one split"),
        (dict(arrange=by_hand(train=[-1])), r"examples of train in \[0, 75\), got -1"),
        (dict(arrange=by_hand(train=[75])), r"examples of train in \[0, 75\), got 75"),
        (dict(arrange=by_hand(train=[0.5])), "examples of train: a row of integers"),
        (dict(arrange=by_hand(train=[None])), "examples of train: a row of integers"),
        (dict(name="../x"), "named in letters"),
        (dict(name="/x"), "named in letters"),
        (dict(files={"../x": ""}), "named in letters"),
        (dict(files={"..": ""}), "named in letters"),
        (dict(arrange=lambda pool: None), "none named train, dev, test"),
        (dict(files={"labels.npy": ""}), "other names"),
        (dict(vocab_size=0), "vocab_size ≥ 1"),
        (dict(first_id=-1), "first_id in"),
    ],
)
def test_a_users_examples_are_checked(tmp_path, changes, words):
    with pytest.raises(SbmtError, match=words):
        prepare(toy_source(**changes), tmp_path)
    assert not list(tmp_path.glob("[!.]*"))


def test_examples_lie_end_to_end():
    examples = Examples.of([(b"ab", b""), (b"c", b"de")], [1, 0], weight=[0.5, 2.0])
    assert examples.symbols.tobytes() == b"abcde"
    assert examples.lengths.tolist() == [[2, 0], [1, 2]]
    assert examples.labels.tolist() == [1, 0] and examples.labels.dtype == np.int64
    assert examples.extras["weight"].tolist() == [0.5, 2.0]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "change",
    [
        {"symbols": np.arange(3, dtype=np.int64)},
        {"symbols": np.zeros(4, np.uint8)},
        {"lengths": np.array([1, 2])},
        {"labels": np.array([0])},
        {"lengths": np.array([[4], [-1]])},
        {"lengths": np.array([[1.0], [2.0]])},
        {"labels": np.array([0, -1])},
        {"labels": np.array([0, np.nan])},
        {"labels": np.array([0, None])},
        {"extras": {"weight": np.array([1.0])}},
        {"extras": {"../weight": np.array([1.0, 2.0])}},
        {"extras": {"weight": np.array(["a", None])}},
    ],
)
def test_sizes_that_do_not_fit_are_refused(change):
    whole = {"symbols": np.zeros(3, np.uint8), "lengths": np.array([[1], [2]]), "labels": np.array([0, 1])}
    Examples(**whole)
    with pytest.raises(SbmtError):
        Examples(**whole | change)


def test_every_example_goes_where_its_part_says():
    """Further splits come after the usual three, in the order of the parts."""
    splits = np.array(["mismatched", "dev", "train", "other", "test", "mismatched"])
    arranged = by_part(Pool(np.zeros(6, np.int64), np.ones((6, 1), np.int64), splits, {}))
    found = {split: rows.tolist() for split, rows in arranged.items()}
    assert found == {"train": [2], "dev": [1], "test": [4], "mismatched": [0, 5], "other": [3]}
    assert list(found) == [*SPLITS, "mismatched", "other"]
