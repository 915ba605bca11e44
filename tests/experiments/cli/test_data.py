"""``sbmt data`` on small tables of GLUE."""

import shutil

import pytest

from tests.experiments.data.glue_layout import table


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
@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_vocabulary_of_no_size_is_refused(run, tmp_path, size):
    (tmp_path / "text.txt").write_text("some text\n" * 99)
    code, _, err = run("data", "prepare", "corpus", "--from", "text.txt", "--vocab-size", size)
    assert code == 2 and f"got {size}" in err and err.count("\n") == 1
