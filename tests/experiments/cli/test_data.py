"""``sbmt data`` on small tables of GLUE."""

import pytest

from tests.experiments.data.glue.layout import table


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
