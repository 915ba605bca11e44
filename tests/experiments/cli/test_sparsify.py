"""``sbmt sparsify`` on a run that was trained for three steps."""

import json

import pytest

from sbmt import SbmtError

SMALL = "sparsify full --edges-per-query 3 --steps 2 --clusters 16 --examples 8".split()


@pytest.fixture(autouse=True)
def trained(succeed):
    words = "--length 8 --batch-size 4 --steps 3 --test-sequences 8 --attention full --output full"
    succeed("train", "repeated-tokens", *words.split())


def test_sparsify_evaluate_inspect(succeed, tmp_path):
    out = succeed(*SMALL, "--json", "masks.json")
    assert "Full attention: accuracy" in out and "k-means" in out and "oracle" in out
    found = json.loads((tmp_path / "masks.json").read_text())
    assert found == json.loads((tmp_path / "full-fitted" / "masks.json").read_text())
    assert found["levels"][0][0]["kind"] == "fitted" and found["n_examples"] == 8
    succeed("evaluate", "full-fitted", "--sequences", "8")
    succeed("inspect", "full-fitted")


@pytest.mark.parametrize("more", [[], ["--fine-tune", "2"]])
def test_an_interrupted_comparison_goes_on(run, succeed, refused, tmp_path, monkeypatch, more):
    def interrupt(*_):
        raise SbmtError("to compare", "an interruption", "go on")

    succeed(*SMALL, *more, "--output", "whole")
    with monkeypatch.context() as patch:
        patch.setattr("sbmt.experiments.sparsification.compare.compare", interrupt)
        assert run(*SMALL, *more)[0] != 0
    folder = tmp_path / "full-fitted"
    assert not (folder / "masks.json").exists()
    before = (folder / "result.json").read_bytes()
    assert json.loads(before)["sparsified"].get("fine_tune_steps") == (2 if more else None)
    assert "oracle" in succeed(*SMALL, *more)
    assert (folder / "result.json").read_bytes() == before
    found, wanted = (json.loads((path / "masks.json").read_text()) for path in (folder, tmp_path / "whole"))
    assert found["levels"] == wanted["levels"]
    refused([*SMALL, *more], "a folder without a run")


@pytest.mark.bad_input
def test_mistakes_take_one_line(refused):
    for words, error in (
        ("nowhere", "the folder of a run"),
        ("full --output full", "a folder without a run, got full"),
        ("full --steps 0", "steps ≥ 1"),
        ("full --fine-tune -1", "fine_tune ≥ 0"),
        ("full --edges-per-query 0", "edges_per_query > 0"),
        ("full --no-compare --json x.json", "--json with a comparison"),
        ("full --json /proc/x.json", "to write /proc/"),
        ("full --examples 1", "at least 2 test examples"),
    ):
        refused(f"sparsify {words}", error)
