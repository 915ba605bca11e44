"""A trained run with fitted masks, and beside it other masks of the same size."""

import copy
from dataclasses import replace
from itertools import islice

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.sparsification.compare import (
    KINDS,
    compare,
    examples,
    fit_run,
    report,
    set_density,
    tuned_run,
)
from sbmt.experiments.training import evaluate, fit
from sbmt.experiments.training.evaluate import inputs
from sbmt.experiments.training.run import load_run
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.fit import seen_heads

OPTIONS = {"n_clusters": 16}


@pytest.fixture(scope="module", autouse=True)
def cache(toy_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBMT_CACHE", str(toy_cache))
        yield


@pytest.fixture(autouse=True)
def no_folders_of_the_user(cache):
    """The examples of this module, in place of none."""


@pytest.fixture(scope="module")
def full(cache, tiny):
    return fit(tiny("listops", attention="full"), accelerator="cpu")


@pytest.fixture(scope="module")
def sparse(full):
    return fit_run(full, 4.0, 3, **OPTIONS)


def test_a_run_with_fitted_masks_is_a_run(full, sparse, tmp_path):
    assert sparse.config.attention == "sbm" and sparse.config.options.edges_per_query == 4.0
    sparse.save(tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert loaded.about["sparsified"] == {"steps": 3, "accuracy": full.test.accuracy}
    steps = [row for row in loaded.rows if row["split"] == "fit"]
    assert [row["step"] for row in steps] == [1, 2, 3] and steps[0]["auxiliary_loss"] > 0
    assert sparse.history == full.history and loaded.history["step"] == full.history["step"]
    assert evaluate(loaded).accuracy == evaluate(sparse).accuracy == sparse.test.accuracy
    assert {"interval", "chance", "data"} <= set(loaded.about)
    theirs = sparse.model.state_dict()  # the network keeps its weights
    assert all(torch.equal(theirs[name], weight) for name, weight in full.model.state_dict().items())


@pytest.mark.parametrize("density", [0.1, 0.4])
def test_rates_are_scaled_to_a_density(full, sparse, density):
    model = copy.deepcopy(sparse.model)
    seen = [seen_heads(model, batch) for batch in map(inputs, islice(examples(full, "test"), 2))]
    set_density(model, seen, density)
    layers = fitted_layers(model).items()
    found = torch.stack([heads[name].attend(layer.eval()).density.mean() for heads in seen for name, layer in layers])
    assert found.mean().item() == pytest.approx(density, rel=0.15)


def test_every_kind_is_compared_and_nothing_is_changed(full, sparse):
    before = copy.deepcopy(sparse.model.state_dict())
    named = []
    found = compare(full, sparse, 0.3, 10, on_kind=named.append)
    assert tuple(named) == KINDS == tuple(compared.name for compared in found)
    assert all(torch.equal(sparse.model.state_dict()[name], t) for name, t in before.items())
    for compared in found:
        assert compared.scores.n_examples == 10
        assert 0 < compared.masks.mean("attention_mass") <= 1 and compared.masks.mean("error") > 0
    oracle, random = (next(c for c in found if c.name == name) for name in ("oracle", "random"))
    assert oracle.masks.mean("attention_mass") > random.masks.mean("attention_mass")


def test_the_report_pairs_answers(full, sparse):
    found = report(full, [compare(full, sparse, 0.3, 10)])
    answers = evaluate(full, 10)
    assert found["full"]["accuracy"] == answers.accuracy
    for kind in found["levels"][0]:
        assert kind["lost"] == pytest.approx(answers.accuracy - kind["accuracy"])
        assert kind["lost_error"] >= 0 and len(kind["layers"]) == 2


@pytest.mark.bad_input
def test_other_data_are_refused_before_the_fit(full):
    about = full.about | {"data": full.about["data"] | {"sha256": "0" * 64}}
    with pytest.raises(SbmtError, match="examples with checksum 000"):
        fit_run(replace(full, about=about), 4.0, 2, on_step=lambda *_: pytest.fail("it was fitted"), **OPTIONS)


def test_a_tuned_run_is_another_network_of_the_same_kind(full, sparse):
    tuned, again = (tuned_run(full, sparse, 4) for _ in range(2))
    mine, theirs = tuned.model.state_dict(), sparse.model.state_dict()
    assert all(not torch.equal(theirs[name], t) for name, t in mine.items() if "query" in name)
    assert all(torch.equal(again.model.state_dict()[name], t) for name, t in mine.items())
    assert tuned.about["sparsified"] == {"steps": 3, "accuracy": full.test.accuracy, "fine_tune_steps": 4}
    assert tuned.config == sparse.config and tuned.test.loss != sparse.test.loss


def test_every_kind_is_tuned_and_full_attention_too(full, sparse):
    before = report(full, [compare(full, sparse, n_examples=8)])
    after = report(full, [compare(full, sparse, n_examples=8, fine_tune_steps=3)], 3)
    assert after["fine_tune_steps"] == 3 and after["full"]["loss"] != before["full"]["loss"]
    for one, other in zip(before["levels"][0], after["levels"][0], strict=True):
        assert one["kind"] == other["kind"] and one["attention_mass"] == pytest.approx(other["attention_mass"], abs=0.2)
        assert one["loss"] != other["loss"], one["kind"]
