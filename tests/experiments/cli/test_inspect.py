"""``sbmt inspect`` on small runs on prepared examples."""

import re
import shutil

import pytest

from sbmt.experiments.plots.attended import inspect_examples
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.run import load_run


@pytest.fixture
def make(run, tiny, tiny_glue, toy_cache, language_cache, tmp_path):
    """Trains a run in the folder ``r``."""
    for cache in (toy_cache, language_cache):
        shutil.copytree(cache, tmp_path / "cache", dirs_exist_ok=True)
    return lambda task: fit((tiny_glue if task == "sst2" else tiny)(task), tmp_path / "r")


@pytest.mark.parametrize("task", ["listops", "sst2"])
def test_a_run_is_shown_with_its_settings_and_densities(succeed, make, tmp_path, task):
    make(task)
    out = succeed("inspect", "r", "--examples", 12, "--seed", 5, "--query", 0, "--output", "seen.png")
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    settings = out.partition("Test, ")[0]
    assert re.search(rf"task +│ +{task} ", settings) and "weight_decay" not in settings  # the default
    assert "95 % interval" in out
    densities = inspect_examples(load_run(tmp_path / "r"), 12, seed=5).per_example.densities.double()
    for layer, heads in enumerate(densities.unbind(1)):
        expected = " ".join(f"{x.mean():.4f} ± {x.std():.4f}" for x in (heads.mean(1), *heads.T))
        assert f"{layer} {expected}" in " ".join(out.replace("│", " ").split())


@pytest.mark.bad_input
def test_options_that_do_not_apply_are_refused(refused, make, pretrained, tmp_path):
    make("image")
    refused("inspect r --query 3", "no --query for a task on images")
    refused("inspect r --examples 1", "at least 2 examples")
    refused("inspect r --output seen.doc", "a file ending")
    refused("inspect --examples 3", "only for a run on prepared examples")
    refused(["inspect", str(pretrained())], "one on mlm: fine-tune it")
    assert not list(tmp_path.glob("*.png"))
