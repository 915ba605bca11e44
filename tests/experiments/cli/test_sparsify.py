"""Tests ``sbmt sparsify`` on a run that was trained for three steps."""

import json

import pytest

SMALL = "sparsify full --edges-per-query 3 --steps 2 --clusters 16 --examples 8".split()


@pytest.fixture(autouse=True)
def trained(succeed):
    words = "--length 8 --batch-size 4 --steps 3 --test-sequences 8 --attention full --output full"
    succeed("train", "repeated-tokens", *words.split())


def test_sparsify_evaluate_inspect(succeed, refused, tmp_path):
    out = succeed(*SMALL)
    assert "Full attention: 0." in out and "window and both ends" in out and "oracle" in out
    found = json.loads((tmp_path / "full-fitted" / "masks.json").read_text())
    assert found["kinds"][0]["kind"] == "fitted" and found["n_examples"] == 8
    refused(SMALL, "a new or empty folder")
    succeed("evaluate", "full-fitted", "--sequences", "8")
    succeed("inspect", "full-fitted")


@pytest.mark.bad_input
def test_mistakes_take_one_line_and_leave_no_folder(refused, tmp_path):
    for words, error in (
        ("nowhere", "the folder of a run"),
        ("full --output full", "a new or empty folder, got full"),
        ("full --steps 0", "steps ≥ 1"),
        ("full --edges-per-query 0", "edges_per_query > 0"),
        ("full --output /proc/x", "cannot write /proc/"),
        ("full --examples 1", "at least 2 examples"),
    ):
        refused(f"sparsify {words}", error)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
