"""Tests a trained run with fitted masks, compared with other masks of the same density."""

import copy
from dataclasses import replace

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.sparsification.compare import CONTROLS, FITTED, compare, with_masks
from sbmt.experiments.sparsification.trained import sparsify_run
from sbmt.experiments.training import evaluate, fit
from sbmt.experiments.training.run import load_run

OPTIONS = {"edges_per_query": 4.0, "n_clusters": 16}


@pytest.fixture(scope="module", autouse=True)
def cache(toy_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBMT_CACHE", str(toy_cache))
        yield


@pytest.fixture(autouse=True)
def no_folders_of_the_user(cache):
    """Uses the small examples in all tests of this module."""


@pytest.fixture(scope="module")
def full(cache, tiny):
    return fit(tiny("listops", attention="full"), accelerator="cpu")


@pytest.fixture(scope="module")
def compared(full):
    """Returns the run with fitted masks, its comparison with others, and the calls of a progress bar."""
    calls = []

    def track(items, **options):
        for item in items:
            calls.append(options)
            yield item

    return *sparsify_run(full, 10, 3, OPTIONS, track), calls


@pytest.fixture(scope="module")
def sparse(compared):
    return compared[0]


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
    theirs = sparse.model.state_dict()  # the weights of the network are unchanged
    assert all(torch.equal(theirs[name], weight) for name, weight in full.model.state_dict().items())


def test_every_kind_is_compared(full, compared):
    _, found, calls = compared
    kinds = FITTED, *CONTROLS
    assert tuple(row["kind"] for row in found["kinds"]) == kinds
    assert calls == [{"description": "fit", "total": 4}] * 4 + [{"description": "masks", "total": 7}] * 7
    answers = evaluate(full, 10)
    assert found["n_examples"] == 10 and found["full"]["accuracy"] == answers.accuracy
    for row in found["kinds"]:
        assert 0 < row["attention_mass"] <= 1 and row["error"] > 0 and row["lost_error"] >= 0
        assert row["lost"] == pytest.approx(answers.accuracy - row["accuracy"])
    oracle, random = (next(row for row in found["kinds"] if row["kind"] == name) for name in ("oracle", "random"))
    assert oracle["attention_mass"] > random["attention_mass"]


def test_losses_are_paired(full, sparse):
    """The loss is each item's score under full attention minus its score under the mask."""
    tokens = [{"tokens": torch.randint(6, (4, 20)), "mask": None}]
    before = copy.deepcopy(sparse.model.state_dict())
    items = {id(full.model): torch.tensor([1.0, 0.0, 1.0]), id(sparse.model): torch.tensor([1.0, 1.0, 0.0])}
    fitted, *_ = compare(full.model, sparse.model, tokens, "share", lambda m: items.get(id(m), torch.zeros(3)))
    assert fitted["share"] == pytest.approx(2 / 3) and fitted["lost"] == pytest.approx(0)
    assert fitted["lost_error"] == pytest.approx(1 / 3**0.5)  # of 0, −1 and 1, whose standard deviation is 1
    assert all(torch.equal(sparse.model.state_dict()[name], t) for name, t in before.items())  # it is unchanged
    with pytest.raises(SbmtError, match="at least 2 test items"):
        compare(full.model, sparse.model, tokens, "share", lambda m: torch.ones(1))


def test_other_kinds_take_the_density_that_is_asked_for(full, sparse):
    tokens = [{"tokens": torch.randint(6, (4, 20)), "mask": None}]
    for kind, masked in with_masks(full.model, sparse.model, tokens, density=0.5):
        density = torch.stack([x.density for x in masked.eval()(**tokens[0]).attention]).mean().item()
        if kind not in ("full attention", "fitted"):
            assert density == pytest.approx(0.5, abs=0.06), kind


@pytest.mark.bad_input
def test_other_data_are_refused_before_the_fit(full):
    about = full.about | {"data": full.about["data"] | {"sha256": "0" * 64}}
    with pytest.raises(SbmtError, match="examples with checksum 000"):
        sparsify_run(replace(full, about=about), 10, 2, OPTIONS, lambda *_, **__: pytest.fail("it was fitted"))
