from dataclasses import replace

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training import RepeatedTokensConfig, build_model, evaluate, load_run, train
from sbmt.experiments.training import loop as loop_module

TINY = RepeatedTokensConfig(length=8, batch_size=4, steps=12, d_model=8, d_hidden=8, n_clusters=4, test_sequences=16)


class Stopped(Exception):
    pass


def stop_after(number):
    def on_step(step):
        if step.number == number:
            raise Stopped

    return on_step


@pytest.mark.parametrize("attention", ["sbm", "full", "random_mask"])
def test_interrupted_training_resumes_to_the_same_numbers(tmp_path, monkeypatch, attention):
    monkeypatch.setattr(loop_module, "CHECKPOINT_EVERY", 5)
    config = replace(TINY, attention=attention)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "parts", on_step=stop_after(8))
    seen = []
    parts = train(config, tmp_path / "parts", resume=True, on_step=lambda step: seen.append(step.number))
    assert seen == list(range(6, 13))
    assert parts.history == whole.history
    assert parts.test == whole.test
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(parts.model.state_dict()[name], weight)
    assert not (tmp_path / "parts" / "state.safetensors").exists()


def test_same_seed_same_run_and_other_seed_another():
    assert train(TINY).history == train(TINY).history
    assert train(TINY).history != train(replace(TINY, seed=1)).history


def test_training_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build_model(TINY)
    assert torch.equal(torch.rand(3), expected)


def test_all_methods_see_the_same_data(monkeypatch):
    batches = []
    sample = loop_module.sample_repeated_tokens

    def remember(*arguments, **keywords):
        batches.append(sample(*arguments, **keywords))
        return batches[-1]

    monkeypatch.setattr(loop_module, "sample_repeated_tokens", remember)
    train(TINY)
    train(replace(TINY, attention="full"))
    halves = batches[: TINY.steps], batches[TINY.steps :]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(*halves, strict=True))


def test_a_saved_run_loads_as_it_was(tmp_path):
    run = train(TINY, tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert loaded.config == TINY
    assert loaded.test == run.test
    assert loaded.history["loss"] == pytest.approx(run.history["loss"], rel=1e-5)
    again = evaluate(loaded.model, TINY.length, TINY.test_sequences)
    assert again == run.test


def test_the_density_penalty_reaches_the_block_model():
    plain = train(replace(TINY, steps=40, learning_rate=0.02))
    pressed = train(replace(TINY, steps=40, learning_rate=0.02, density_weight=10.0, density_kind="expected"))
    assert pressed.test.expected_density < 0.5 * plain.test.expected_density


@pytest.mark.parametrize("n_samples", [1, 3])
def test_evaluation_restores_the_mode_and_is_seeded(n_samples):
    model = build_model(TINY).train()
    first = evaluate(model, TINY.length, 10, n_samples=n_samples)
    assert model.training
    assert evaluate(model, TINY.length, 10, n_samples=n_samples) == first
    assert evaluate(model, TINY.length, 10, n_samples=n_samples, seed=1) != first


@pytest.mark.bad_input
def test_a_folder_is_not_overwritten(tmp_path):
    train(TINY, tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(SbmtError, match="a folder without a run"):
        train(TINY, tmp_path / "run")
    with pytest.raises(SbmtError, match="a checkpoint in"):
        train(TINY, tmp_path / "run", resume=True)
    with pytest.raises(SbmtError, match="resume with the same settings"):
        train(replace(TINY, seed=3), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.bad_input
def test_a_loss_that_is_not_finite_stops_training():
    with pytest.raises(SbmtError, match=r"a finite loss|without NaN"):
        train(replace(TINY, learning_rate=1e30))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "result.json", "metrics.csv", "state.safetensors"]
)
def test_damaged_runs_are_refused(tmp_path, monkeypatch, file):
    folder = tmp_path / "run"
    if file == "state.safetensors":
        monkeypatch.setattr(loop_module, "CHECKPOINT_EVERY", 5)
        with pytest.raises(Stopped):
            train(TINY, folder, on_step=stop_after(8))
    else:
        train(TINY, folder)
    path = folder / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(SbmtError):
        train(TINY, folder, resume=True) if file == "state.safetensors" else load_run(folder)


@pytest.mark.bad_input
def test_weights_of_another_size_are_refused(tmp_path):
    train(TINY, tmp_path / "a")
    train(replace(TINY, n_clusters=5), tmp_path / "b")
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    with pytest.raises(SbmtError, match="weights in"):
        load_run(tmp_path / "a")


def test_the_learning_rate_falls_at_the_end(monkeypatch):
    seen = []
    step = torch.optim.Adam.step

    def watched(self, *given, **more):
        seen.append(self.param_groups[0]["lr"])
        return step(self, *given, **more)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    train(replace(TINY, steps=6, learning_rate=1.0, cooldown=3))
    assert seen == [1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
