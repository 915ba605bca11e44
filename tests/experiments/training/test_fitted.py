"""Training of masks that are fitted by likelihood: its optimiser and its numbers."""

import pytest

from sbmt import SBMAttention
from sbmt.experiments.training.config import BETAS, FIT_RATE, build_model
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.generated import SIZES, RecallConfig, fitted

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
    plain = fit(SIZES["demo"].override(steps=2, length=16, batch_size=4, test_sequences=4))
    assert not any("auxiliary_loss" in row for row in plain.rows)
