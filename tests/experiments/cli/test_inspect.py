import re

import pytest

from sbmt.experiments.plots.attended import inspect_examples
from sbmt.experiments.plots.densities import difficulty_measures, rank_correlations
from sbmt.experiments.training.run import load_run
from tests.experiments.plots.tiny_glue import tiny_glue_run, tiny_mlm_run
from tests.experiments.plots.tiny_long_range import tiny_run


def test_a_run_is_shown_with_its_densities_and_correlations(run, tmp_path):
    tiny_run("listops", tmp_path / "cache")[0].save(tmp_path / "r")
    code, out, _ = run("inspect", "r", "--examples", 12, "--seed", 5, "--output", "seen.png")
    assert code == 0
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    settings = out.partition("Test, ")[0]
    assert re.search(r"n_clusters +│ 4 ", settings) and "learning_rate" not in settings
    assert "Test, 20 examples: accuracy 0.5000" in out and "95 % interval 0.299 to 0.701" in out
    seen = inspect_examples(load_run(tmp_path / "r"), 12, seed=5)
    densities = seen.per_example.densities.double()
    for layer in range(2):
        heads = densities[:, layer]
        expected = " ".join(f"{x.mean():.4f} ± {x.std():.4f}" for x in (heads.mean(1), *heads.T))
        assert f"{layer} {expected}" in " ".join(out.replace("│", " ").split())
    rows = rank_correlations(seen.per_example.densities, difficulty_measures(seen.per_example.extras, seen.lengths))
    assert {row.measure for row in rows} == {"turns", "length"}
    for row in rows:
        assert re.search(rf"{row.measure} +│ {row.part} +│ +{re.escape(f'{row.rho:+.3f}')} ", out)
    assert "1/n for self-loops" in out


def test_a_constant_density_is_said_plainly(run, tmp_path):
    tiny_run("listops", tmp_path / "cache", attention="full")[0].save(tmp_path / "r")
    code, out, _ = run("inspect", "r")
    assert code == 0
    assert "Every example has the same density in every head: no rank correlation with turns, length." in out
    assert "nan" not in out and (tmp_path / "inspect.png").exists()


def test_images_without_a_measure_of_difficulty(run, tmp_path):
    tiny_run("image", tmp_path / "cache")[0].save(tmp_path / "r")
    code, out, _ = run("inspect", "r", "--examples", 3)
    assert code == 0
    assert "Nothing is known of how difficult these examples are" in out


def test_a_run_on_sentences_is_shown_with_its_own_tokeniser(run, tmp_path):
    tiny_glue_run("sst2", tmp_path / "cache")[0].save(tmp_path / "r")
    (tmp_path / "cache" / "tokenizer.json").unlink()  # the run has its own
    code, out, _ = run("inspect", "r", "--examples", 12, "--query", 0, "--output", "seen.png")
    assert code == 0
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    settings = out.partition("Test, ")[0]
    assert re.search(r"task +│ sst2 ", settings) and re.search(r"window +│ 2 ", settings)
    assert "weight_decay" not in settings and "pooling" not in settings  # these are the defaults of fine-tuning
    seen = inspect_examples(load_run(tmp_path / "r"), 12)
    rows = rank_correlations(seen.per_example.densities, difficulty_measures(seen.per_example.extras, seen.lengths))
    assert {row.measure for row in rows} == {"length"} and len(rows) == 5
    for row in rows:
        assert re.search(rf"length +│ {row.part} +│ +{re.escape(f'{row.rho:+.3f}')} ", out)


@pytest.mark.bad_input
def test_a_masked_language_model_has_no_labels_to_look_at(run, tmp_path):
    tiny_mlm_run().save(tmp_path / "r")
    code, out, err = run("inspect", "r")
    assert code == 2 and not out and not list(tmp_path.glob("*.png"))
    assert "a run on labelled examples" in err and "one on mlm: fine-tune it first" in err and err.count("\n") == 1


@pytest.mark.bad_input
def test_a_query_beyond_a_sentence_is_refused(run, tmp_path):
    tiny_glue_run("qnli", tmp_path / "cache")[0].save(tmp_path / "r")
    code, _, err = run("inspect", "r", "--query", 400)
    assert code == 2 and "a query position in" in err


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "task, arguments, message",
    [
        ("image", ["r", "--query", "3"], "no --query for a task on images"),
        ("text", ["r", "--query", "500"], "a query position in"),
        ("text", ["r", "--examples", "1"], "--examples ≥ 2"),
        ("text", ["r", "--output", "seen.doc"], "a file ending"),
        ("text", ["--examples", "3"], "no --examples for a run on repeated tokens"),
    ],
)
def test_options_that_do_not_apply_are_refused(run, tmp_path, task, arguments, message):
    tiny_run(task, tmp_path / "cache")[0].save(tmp_path / "r")
    code, _, err = run("inspect", *arguments)
    assert code == 2
    assert message in err and err.count("\n") == 1
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.bad_input
def test_other_data_are_refused(run, tmp_path):
    loaded, _ = tiny_run("text", tmp_path / "cache")
    loaded.about["data"]["sha256"] = "0" * 64
    loaded.save(tmp_path / "r")
    code, _, err = run("inspect", "r")
    assert code == 2 and "checksum" in err
