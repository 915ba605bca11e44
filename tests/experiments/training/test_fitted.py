"""Training of masks that are fitted by likelihood: its optimiser, its numbers, stopping and going on."""

import pytest
import torch

from sbmt import SBMAttention
from sbmt.experiments.training.config import BETAS, FIT_RATE, build_model
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.tasks import SIZES, GeneratedConfig, RecallConfig, fitted
from tests.experiments.training.runs import Stopped, has_same_numbers, stop_after

SMALL = dict(preset="fitted", n_clusters=16, edges_per_query=4.0, extra_keys=1.0)
SMALL |= dict(steps=12, length=16, batch_size=8, test_sequences=16)


def config(**settings):
    return SIZES["demo"].override(**fitted(**SMALL | settings))


def test_block_models_have_a_rate_of_their_own():
    model = build_model(config())
    network, block_models = config().parameter_groups(model)
    (attention,) = [module for module in model.modules() if isinstance(module, SBMAttention)]
    assert {id(p) for p in block_models["params"]} == {id(p) for p in attention.parameters()}
    assert len(network["params"]) + len(block_models["params"]) == len(list(model.parameters()))
    rates = [(group["lr"], group["betas"]) for group in config().make_optimizer([network, block_models]).param_groups]
    assert rates == [(3e-3, (0.9, 0.999)), (1e-2, BETAS)]
    assert len(SIZES["demo"].parameter_groups(build_model(SIZES["demo"]))) == 1
    recall = RecallConfig().override(preset="fitted", n_clusters=16, learning_rate=2e-3)
    assert [group.get("lr") for group in recall.parameter_groups(build_model(recall))] == [None, FIT_RATE * 2e-3]


def test_the_fit_is_trained_and_reported(tmp_path):
    steps = []
    run = fit(config(), tmp_path / "run", on_step=steps.append)
    losses = [step.auxiliary_loss for step in steps]
    assert losses[-1] < losses[0]
    assert [row["auxiliary_loss"] for row in run.rows] == pytest.approx(losses, rel=1e-5)
    assert "auxiliary_loss" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    without = fit(config(auxiliary_weight=0.0))
    start, end = build_model(config()).state_dict(), without.model.state_dict()
    kept = [name for name in start if "node_mlp" in name or "clusters" in name or "log_rate" in name]
    assert kept and all(torch.equal(start[name], end[name]) for name in kept)
    plain = fit(SIZES["demo"].override(steps=2, length=16, batch_size=4, test_sequences=4))
    assert not any("auxiliary_loss" in row for row in plain.rows)


@pytest.fixture
def seen(monkeypatch):
    """What every forward pass of a layer in training was told: whether to attend all pairs, and c."""
    told, forward = [], SBMAttention.forward

    def telling(layer, *args, **kwargs):
        if layer.training:
            told.append((layer.is_dense, layer.edges_per_query))
        return forward(layer, *args, **kwargs)

    monkeypatch.setattr(SBMAttention, "forward", telling)
    return told


def test_the_first_steps_attend_all_pairs_and_the_rest_draw(seen):
    """Counted in steps of the optimiser, not in the parts of a batch."""
    run = fit(config(dense_steps=4, accumulate=2, n_layers=2))
    assert [is_dense for is_dense, _ in seen] == [True] * 16 + [False] * 32
    densities = run.history["density"]
    assert densities[:4] == [1.0] * 4 and max(densities[4:]) < 0.9
    drawn = fit(config(n_layers=2, accumulate=2))
    assert max(drawn.history["density"]) < 0.9 and drawn.history["loss"][0] != run.history["loss"][0]


def test_c_goes_from_one_value_to_another_at_equal_ratios(seen):
    mine = config(edges_from=64.0, edges_ramp=4)
    course = [64.0, 32.0, 16.0, 8.0, 4.0, 4.0]
    assert [mine.edges_per_query_at(step, 4.0) for step in range(1, 7)] == pytest.approx(course, rel=1e-12)
    assert (mine.edges_per_query_at(1, 4.0), mine.edges_per_query_at(5, 4.0)) == (64.0, 4.0)  # to the last bit
    assert config().edges_per_query_at(1, 4.0) == 4.0
    fit(mine)
    assert [edges for _, edges in seen] == pytest.approx(course + 6 * [4.0], rel=1e-12)


def test_a_run_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    """From step 5 of 12, before the courses of dense steps and of c end."""
    settings = dict(dense_steps=6, edges_from=16.0, edges_ramp=9)
    monkeypatch.setattr(GeneratedConfig, "checkpoint_every", 5)
    whole = fit(config(**settings), tmp_path / "whole")
    with pytest.raises(Stopped):
        fit(config(**settings), tmp_path / "part", on_step=stop_after(7))
    part = fit(config(**settings), tmp_path / "part", resume=True)
    assert part.test == whole.test and has_same_numbers(tmp_path / "part", tmp_path / "whole")
