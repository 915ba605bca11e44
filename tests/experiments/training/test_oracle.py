"""Attention along edges that the task gives away."""

from dataclasses import replace

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training import RecallConfig, build_model, evaluate, fit, load_run

SIZES = dict(n_pairs=4, n_queries=8, n_distractors=4, n_keys=12, n_values=8, d_model=32, d_hidden=32)
ORACLE = RecallConfig(**SIZES, attention="full", is_oracle=True, batch_size=32, steps=150, test_sequences=64)


@pytest.mark.parametrize("permutation", [False, True])
def test_the_item_and_the_query_are_enough(permutation, tmp_path):
    """At any length, with two edges for a query and one for an item."""
    run = fit(replace(ORACLE, permutation=permutation, n_heads=2), tmp_path / "run")
    assert run.test.accuracy > 0.99 and run.test.density == pytest.approx((8 * 2 + 8) / 16**2)
    assert evaluate(load_run(tmp_path / "run")).accuracy == run.test.accuracy
    long = evaluate(replace(run, config=replace(run.config, n_distractors=84)), 64)
    assert long.accuracy > 0.99 and long.density == pytest.approx((96 + 8) / 96**2)


def test_it_is_full_attention_but_for_the_mask():
    """The same weights, and the same answers where a query and its item are all there is."""
    few = replace(ORACLE, n_pairs=1, n_queries=1, n_distractors=0)
    oracle, full = build_model(few), build_model(replace(few, is_oracle=False))
    assert all(torch.equal(x, full.state_dict()[name]) for name, x in oracle.state_dict().items())
    batch = few.sample(3, torch.Generator().manual_seed(0))
    found, expected = (model(batch.tokens, selected=batch.selected) for model in (oracle, full))
    torch.testing.assert_close(found.values, expected.values)
    assert found.attention[0].density.tolist() == [[0.75]] * 3


@pytest.mark.bad_input
@pytest.mark.parametrize("changes", [{"attention": "sbm"}, {"is_log_scaled": True}])
def test_it_takes_the_place_of_full_attention_alone(changes):
    with pytest.raises(SbmtError, match="oracle with attention 'full'"):
        ORACLE.override(**changes)
