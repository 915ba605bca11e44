"""Prepared examples are complete or absent, whatever happens meanwhile, and invalid ones are rejected."""

import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared, prepare
from sbmt.experiments.data.source import SPLITS, Examples
from tests.experiments.data.toy import SIZES, toy_examples, toy_source
from tests.experiments.training.runs import contents


@pytest.mark.parametrize("task", ["retrieval", "image", "text"])
def test_examples_come_back_as_they_were_made(tmp_path, task):
    prepared = prepare(toy_source(task), tmp_path)
    for split in SPLITS:
        parts = [toy_examples(task, n, i) for i, (name, n) in enumerate(SIZES.items()) if name.startswith(split)]
        found = prepared.splits[split]
        assert all(isinstance(x, np.memmap) for x in (found.symbols, found.lengths, found.indices))
        with pytest.raises(ValueError, match="read-only"):
            found.symbols[0] = 1
        documents = [document for i in range(len(found)) for document in found.documents(i)]
        assert [len(document) for document in documents] == [n for part in parts for n in part.lengths.ravel()]
        assert np.concatenate(documents).tolist() == [x for part in parts for x in part.symbols.tolist()]
        assert found.symbols.dtype == prepared.info["symbol_type"] == "uint8"
        assert found.labels.tolist() == [y for part in parts for y in part.labels.tolist()]
        for name, extra in found.extras.items():
            assert extra.tolist() == [x for part in parts for x in part.extras[name].tolist()]
    assert prepared.info["extras"] == ([] if task == "image" else ["weight"])


def test_the_same_source_gives_the_same_bytes_and_is_not_made_again(tmp_path):
    files = {"tokenizer.json": '{"é": 1}\n'}
    first, second = (prepare(toy_source(files=files), tmp_path / name) for name in "ab")
    assert contents(first.folder) == contents(second.folder)
    assert contents(first.folder)["tokenizer.json"] == files["tokenizer.json"].encode()
    prepare(toy_source(make=None, files=files), tmp_path / "a")  # this would fail if called


@pytest.mark.bad_input
def test_other_examples_of_the_same_name_are_refused(tmp_path):
    before = contents(prepare(toy_source(), tmp_path).folder)
    with pytest.raises(SbmtError, match="differ in settings"):
        prepare(toy_source(make=None, settings={"seed": 1}), tmp_path)
    assert contents(tmp_path / "toy-listops") == before


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["toy-listops", ".toy-listops.part"])
def test_folders_that_prepare_has_not_made_are_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    for file in ("notes.txt", "info.json"):
        (tmp_path / name / file).write_text('{"mine": 1}')
        with pytest.raises(SbmtError, match=f"{name} to be absent, empty, or created by this command"):
            prepare(toy_source(), tmp_path)
        assert (tmp_path / name / file).read_text() == '{"mine": 1}'


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(sizes={"train": 4, "test": 3}), "examples in dev, got none"),
        (dict(class_names=("fewer",)), r"labels in \[0, 1\)"),
        (dict(make=lambda task, n, i: Examples.of([], [])), "at least one example"),
        (dict(make=lambda task, n, i: Examples.of([(b"\x09",)] * n, [0] * n)), r"ids are in \[0, 6\), got 10"),
        (dict(make=lambda task, n, i: Examples.of([(b"a",)] * n, [0] * n, x=[1])), "rows of lengths and extras"),
        (dict(symbol_type="uint16"), "uint16 symbols, got uint8"),
        (dict(make=lambda task, n, i: Examples.of([(b"\0",) * (1 + i % 2)] * n, [0] * n)), "numbers of documents"),
        (dict(arrange=lambda pool: {"train": pool.labels, "dev": pool.labels}), "none named test"),
        (dict(arrange=lambda pool: dict.fromkeys(SPLITS, np.arange(3))), "one split only, got example 0 in 3 places"),
        (dict(name="../x"), "names made of letters"),
        (dict(name=3), "names made of letters"),
        (dict(files={"../x": ""}), "names made of letters"),
        (dict(files={"labels.npy": ""}), "that are not reserved"),
        (dict(files={"info.json": ""}), "that are not reserved"),
        (dict(files=None), "files as a dict"),
        (dict(parts=None), "parts and arrange as functions"),
        (dict(parts=lambda: None), "pairs of a split name and Examples, got NoneType"),
        (dict(arrange=lambda pool: None), "a dict of splits, got None"),
        (dict(class_names=None), "tuples of strings, got None"),
        (dict(class_names=("\ud800", "b")), "remove lone surrogates"),
        (dict(files={"a.txt": "\ud800"}), "remove lone surrogates"),
        (dict(make=lambda task, n, i: Examples.of([(b"\1",)] * 4, [0] * 4)), "the same examples in dev and test"),
        (dict(settings={"a": object()}), "settings that can be stored as JSON"),
        (dict(origin="elsewhere"), "origin to be one of"),
        (dict(arrange=lambda pool: {"train": [0], "dev": [1], "test": [[2], [3, 4]]}), "a flat list of integers for"),
        (dict(arrange=lambda pool: {"train": [0], "dev": [1], "test": [-1]}), r"examples of test in \[0"),
    ],
)
def test_a_users_examples_are_checked(tmp_path, changes, words):
    with pytest.raises(SbmtError, match=words):
        prepare(toy_source(**changes), tmp_path)
    assert not list(tmp_path.glob("[!.]*"))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "changes",
    [{"symbols": [1]}, {"symbols": None}, {"lengths": [[1]]}, {"extras": {"x": 3}}, {"extras": {"x": np.array([{}])}}],
)
def test_what_is_no_array_of_numbers_is_told(changes):
    arrays = {"symbols": np.ones(1, np.uint8), "lengths": np.ones((1, 1), np.int64), "labels": np.zeros(1, np.int64)}
    with pytest.raises(SbmtError, match="an array of numbers"):
        Examples(**arrays | changes)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("labels", np.full(75, 9)),
        ("lengths", np.full((75, 1), -1)),
        ("split-dev", np.arange(10)),  # these belong to train
        ("symbols", np.zeros(3, np.int64)),
        ("labels", np.array([{"a": 1}] * 75)),  # pickled
    ],
)
def test_arrays_that_do_not_fit_are_told_even_where_no_checksum_is_compared(tmp_path, name, array):
    folder = prepare(toy_source(), tmp_path).folder
    np.save(folder / f"{name}.npy", array, allow_pickle=True)
    for is_checked in (True, False):
        with pytest.raises(SbmtError, match="the examples in"):
            open_prepared(folder, is_checked=is_checked)


@pytest.mark.bad_input
@pytest.mark.parametrize("module", ["sbmt.experiments.data.prepared.sha256_of", "numpy.load"])
def test_arrays_that_may_not_be_read_are_no_damage(tmp_path, monkeypatch, module):
    folder = prepare(toy_source(), tmp_path).folder

    def fail(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(module, fail)
    with pytest.raises(SbmtError, match="no permission to read "):
        open_prepared(folder)
