"""``sbmt inspect`` on runs that were not trained."""

import re

import pytest

from sbmt.experiments.plots.attended import inspect_examples
from sbmt.experiments.training.run import load_run
from tests.experiments.plots.tiny_runs import tiny_glue_run, tiny_mlm_run, tiny_run


@pytest.mark.parametrize(("make", "task"), [(tiny_run, "listops"), (tiny_glue_run, "sst2")])
def test_a_run_is_shown_with_its_settings_and_densities(succeed, tmp_path, make, task):
    make(task, tmp_path / "cache")[0].save(tmp_path / "r")
    (tmp_path / "cache" / "tokenizer.json").unlink(missing_ok=True)  # the run has its own
    out = succeed("inspect", "r", "--examples", 12, "--seed", 5, "--query", 0, "--output", "seen.png")
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    settings = out.partition("Test, ")[0]
    assert re.search(rf"task +│ +{task} ", settings) and "weight_decay" not in settings  # the default
    assert "95 % interval" in out
    densities = inspect_examples(load_run(tmp_path / "r"), 12, seed=5).per_example.densities.double()
    for layer in range(2):
        heads = densities[:, layer]
        expected = " ".join(f"{x.mean():.4f} ± {x.std():.4f}" for x in (heads.mean(1), *heads.T))
        assert f"{layer} {expected}" in " ".join(out.replace("│", " ").split())


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("image", "r --query 3", "no --query for a task on images"),
        ("text", "r --query 500", "a query position in"),
        ("text", "r --examples 1", "at least 2 examples"),
        ("text", "r --output seen.doc", "a file ending"),
        ("text", "--examples 3", "only for a run on prepared examples"),
        ("mlm", "r", "one on mlm: fine-tune it first"),
    ],
)
def test_options_that_do_not_apply_are_refused(refused, tmp_path, task, arguments, message):
    run = tiny_mlm_run() if task == "mlm" else tiny_run(task, tmp_path / "cache")[0]
    run.save(tmp_path / "r")
    refused(f"inspect {arguments}", message)
    assert not list(tmp_path.glob("*.png"))
