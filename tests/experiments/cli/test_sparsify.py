import json
import sys

import pytest

from sbmt import SbmtError

TINY = ["--length", "8", "--batch-size", "4", "--steps", "3", "--test-sequences", "8"]


@pytest.fixture
def trained(run):
    assert run("train", "repeated-tokens", *TINY, "--attention", "full", "--output", "full")[0] == 0


def test_sparsify_evaluate_inspect(run, tmp_path, trained):
    words = "--edges-per-query 3 --steps 2 --clusters 16 --examples 8 --json masks.json --figure masks.png"
    code, out, err = run("sparsify", "full", *words.split())
    assert code == 0, err
    assert "Full attention: accuracy" in out and "k-means" in out and "oracle" in out
    found = json.loads((tmp_path / "masks.json").read_text())
    assert found == json.loads((tmp_path / "full-fitted" / "masks.json").read_text())
    assert found["levels"][0][0]["kind"] == "fitted" and found["n_examples"] == 8
    assert (tmp_path / "masks.png").read_bytes().startswith(b"\x89PNG")
    assert run("evaluate", "full-fitted", "--sequences", "8")[0] == 0
    assert run("inspect", "full-fitted")[0] == 0


def test_fine_tuning(run, tmp_path, trained):
    words = "--edges-per-query 3 --steps 2 --clusters 16 --examples 8 --fine-tune 2 --output tuned --json tuned.json"
    code, _, err = run("sparsify", "full", *words.split())
    assert code == 0, err
    assert json.loads((tmp_path / "tuned.json").read_text())["fine_tune_steps"] == 2
    assert json.loads((tmp_path / "tuned" / "result.json").read_text())["sparsified"]["fine_tune_steps"] == 2
    assert run("evaluate", "tuned", "--sequences", "8")[0] == 0


@pytest.mark.bad_input
@pytest.mark.parametrize("more", ["", " --fine-tune 2"])
def test_an_interrupted_comparison_goes_on(run, tmp_path, trained, monkeypatch, more):
    def interrupt(*_):
        raise SbmtError("to compare", "an interruption", "go on")

    command = f"sparsify full --edges-per-query 3 --steps 2 --clusters 16 --examples 8{more}".split()
    assert run(*command, "--output", "whole")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr("sbmt.experiments.sparsification.compare.compare", interrupt)
        assert run(*command)[0] != 0
    files = tmp_path / "full-fitted", tmp_path / "whole"
    assert not (files[0] / "masks.json").exists()
    before = (files[0] / "result.json").read_bytes()
    code, out, err = run(*command)
    assert code == 0 and "oracle" in out, err
    assert ("fine-tuning" in out) is False and ("fit " in out) is bool(more)
    assert (files[0] / "result.json").read_bytes() == before
    found, wanted = (json.loads((folder / "masks.json").read_text())["levels"] for folder in files)
    assert found == wanted
    code, _, err = run(*command)
    assert code == 2 and "a folder without a run" in err


@pytest.mark.bad_input
def test_the_table_is_printed_before_anything_is_written(run, trained, monkeypatch):
    def full_disk(path, _):
        raise SbmtError(f"to write {path}", "a full disk", "make room")

    monkeypatch.setattr(sys.modules["sbmt.experiments.cli.sparsify"], "write_json", full_disk)
    code, out, err = run("sparsify", "full", "--steps", "2", "--clusters", "16", "--examples", "8")
    assert code == 2 and "a full disk" in err and "k-means" in out


@pytest.mark.bad_input
def test_mistakes_take_one_line(run, trained):
    for words, error in (
        ("nowhere", "the folder of a run"),
        ("full --output full", "a folder without a run, got full"),
        ("full --steps 0", "steps ≥ 1"),
        ("full --fine-tune -1", "fine_tune ≥ 0"),
        ("full --edges-per-query 0", "edges_per_query > 0"),
        ("full --no-compare --figure x.png", "--json and --figure with a comparison"),
        ("full --figure x.doc", "a file ending among"),
        ("full --json /proc/x.json", "to write /proc/"),
        ("full --examples 1", "at least 2 test examples"),
    ):
        code, _, err = run("sparsify", *words.split())
        assert code == 2 and error in err and err.count("\n") == 1
