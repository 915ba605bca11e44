import json

import pytest
import torch

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


def test_without_a_comparison(run, tmp_path, trained):
    code, out, _ = run("sparsify", "full", "--no-compare", "--steps", "2", "--clusters", "16", "--output", "mine")
    assert code == 0 and "k-means" not in out
    assert not (tmp_path / "mine" / "masks.json").exists() and (tmp_path / "mine" / "result.json").exists()
    subnormal = torch.full((1,), 1e-310, dtype=torch.float64)
    assert subnormal * 0.5 > 0  # arithmetic is as before


def test_fine_tuning(run, tmp_path, trained):
    words = "--edges-per-query 3 --steps 2 --clusters 16 --examples 8 --fine-tune 2 --output tuned --json tuned.json"
    code, _, err = run("sparsify", "full", *words.split())
    assert code == 0, err
    assert json.loads((tmp_path / "tuned.json").read_text())["fine_tune_steps"] == 2
    assert json.loads((tmp_path / "tuned" / "result.json").read_text())["sparsified"]["fine_tune_steps"] == 2
    assert run("evaluate", "tuned", "--sequences", "8")[0] == 0


@pytest.mark.bad_input
def test_mistakes_take_one_line(run, trained):
    for words, error in (
        ("nowhere", "the folder of a run"),
        ("full --output full", "a folder without a run, got full"),
        ("full --steps 0", "steps ≥ 1"),
        ("full --clusters 0", "clusters ≥ 1"),
        ("full --fine-tune -1", "fine_tune ≥ 0"),
        ("full --edges-per-query 0", "edges_per_query > 0"),
        ("full --no-compare --figure x.png", "--json and --figure with a comparison"),
        ("full --figure x.doc", "a file ending among"),
    ):
        code, _, err = run("sparsify", *words.split())
        assert code == 2 and error in err and err.count("\n") == 1
