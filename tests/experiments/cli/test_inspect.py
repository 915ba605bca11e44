"""``sbmt inspect`` on small runs on prepared examples."""

import pytest

from sbmt.experiments.training.fit import fit


@pytest.fixture
def make(run, caches, tiny, tiny_glue, tmp_path):
    """Trains a run in the folder ``r``."""
    return lambda task: fit((tiny_glue if task == "sst2" else tiny)(task), tmp_path / "r")


@pytest.mark.parametrize("task", ["listops", "sst2"])
def test_a_run_is_shown(succeed, make, tmp_path, task):
    make(task)
    out = succeed("inspect", "r", "--examples", 12, "--seed", 5, "--query", 0, "--output", "seen.png")
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    assert "95 % interval" in out


@pytest.mark.bad_input
def test_options_that_do_not_apply_are_refused(refused, make, pretrained, tmp_path):
    make("image")
    refused("inspect r --query 3", "--query only for a run on texts")
    refused("inspect r --examples 1", "at least 2 examples")
    refused(["inspect", str(pretrained())], "one on mlm: use sbmt evaluate")
    assert not list(tmp_path.glob("*.png"))
