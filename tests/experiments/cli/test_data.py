"""``sbmt data`` on small tables of GLUE."""

import json
import shutil

import pytest

from sbmt.experiments.files import write_json
from tests.experiments.data.glue_layout import table
from tests.experiments.data.layouts import write_files


@pytest.mark.parametrize("n_short", [0, 2])
def test_skipped_rows_are_reported(run, tmp_path, n_short):
    pairs = [(f"question {i}", f"answer {i}") for i in range(12)]
    content = table("qqp", pairs, ["0", "1"] * 6)
    (tmp_path / "train.tsv").write_bytes(content + b"broken\n" * n_short)
    (tmp_path / "dev.tsv").write_bytes(content)
    code, out, _ = run("data", "prepare", "qqp", "--from", str(tmp_path))
    assert code == 0 and ("rows of train.tsv were skipped" in out) == bool(n_short) and "dev.tsv were" not in out
    assert not n_short or "2 rows of train.tsv were skipped: too short" in out
    code, out, _ = run("data", "list")
    assert code == 0 and ("2 rows of train.tsv were skipped" in out) == bool(n_short)


def test_what_comes_after_a_damaged_folder_is_listed_too(run, toy_cache, tmp_path):
    shutil.copytree(toy_cache, tmp_path / "cache")
    for name in ("toy-image", "toy-listops"):
        (tmp_path / "cache" / name / "info.json").write_text("{")
    code, out, err = run("data", "list")
    assert code == 2 and err.count("\n") == 2 and "toy-image" in err and "toy-listops" in err
    assert "toy-text: " in out and "toy-image: " not in out


@pytest.mark.bad_input
def test_the_files_of_a_task_are_not_removed_where_its_examples_would_be_kept(run, monkeypatch, tmp_path):
    folder = write_files("listops", tmp_path / "x" / "listops")
    (folder / "notes.txt").write_text("mine")
    for name in ("SBMT_CACHE", "SBMT_DATA"):
        monkeypatch.setenv(name, "x")
    for option in ([], ["--replace"]):
        code, _, err = run("data", "prepare", "listops", "--from", "x/listops", *option)
        assert code == 2 and "made by this command" in err and err.count("\n") == 1
    assert (folder / "notes.txt").read_text() == "mine" and len(list(folder.iterdir())) == 4


@pytest.mark.bad_input
def test_what_an_edited_description_says_moves_no_cursor(run, toy_cache, tmp_path):
    shutil.copytree(toy_cache, tmp_path / "cache")
    for name, entries in {
        "toy-text": {"name": "x\x1b[2J", "notes": ["\r\n\x07"]},
        "toy-listops": {"splits": {}},
    }.items():
        path = tmp_path / "cache" / name / "info.json"
        info = json.loads(path.read_text())
        del info["checksum"]
        write_json(path, info | entries, has_checksum=True)
    code, out, err = run("data", "list")
    assert code == 2 and err.count("\n") == 1 and "splits" in err
    assert r"x\x1b[2J: generated" in out and r"\r\n\x07" in out and not {"\x1b", "\x07", "\r"} & set(out + err)


@pytest.mark.bad_input
@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_vocabulary_of_no_size_is_refused(run, tmp_path, size):
    (tmp_path / "text.txt").write_text("some text\n" * 99)
    code, _, err = run("data", "prepare", "corpus", "--from", "text.txt", "--vocab-size", size)
    assert code == 2 and f"got {size}" in err and err.count("\n") == 1
