"""Tests inputs of known density and the functions that are timed on them."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from sbmt import SbmtError, build_attention, sample_edges
from sbmt.experiments.benchmarks.cases import MADE_UP, UNTRAINED, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.suites import entry

SMALL = Setting(128, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8)


@pytest.mark.parametrize("kind", MADE_UP)
@pytest.mark.parametrize(("n", "density", "n_clusters"), [(256, 0.5, 128), (512, 0.04, 32), (1024, 0.0025, 128)])
def test_made_up_inputs_have_the_density_asked_for(kind, n, density, n_clusters):
    case = build(Setting(n, density, kind, n_clusters))
    with torch.no_grad():
        model = case.block_model()
    assert model.shape == (1, 4, n, n)
    assert model.expected_density().mean().item() == pytest.approx(density, rel=0.1)
    if kind == "near-constant":
        assert model.query_membership.std() < 0.1 * model.query_membership.mean()


def test_a_structured_mask_is_block_diagonal_after_sorting():
    case = build(Setting(512, 0.04, "structured"))
    first_head = sample_edges(case.block_model()).to_dense()[0, 0]
    group = [x[0, 0].argmax(-1) for x in (case.query, case.key)]
    assert (first_head & (group[0][:, None] == group[1])).sum() > 0.99 * first_head.sum()
    assert (group[0][1:] >= group[0][:-1]).float().mean() < 0.9  # and the tokens are not sorted


@pytest.mark.parametrize(("n", "keys", "heads"), [(128, 4, (4, 32)), (1500, 16, (4, 32)), (512, 8, (8, 64))])
def test_fitted_memberships_draw_as_many_keys_as_are_asked_for(n, keys, heads):
    case = build(fitted_setting(n, keys, *heads))
    assert case.setting.kind == ("fitted" if heads == (4, 32) else UNTRAINED)
    assert case.query.shape == (1, heads[0], n, heads[1])
    attended = case.layer.eval()(case.query, case.key, case.value).density * n
    assert attended.mean().item() == pytest.approx(keys, rel=0.1)


@pytest.mark.bad_input
def test_a_density_that_no_input_has_is_refused():
    with pytest.raises(SbmtError, match="a density from"):
        build(Setting(64, 1e-9, "structured"))


@pytest.mark.filterwarnings("ignore:flex_attention called without", "ignore:.*torch.jit.script_method")
@pytest.mark.parametrize("name", ["sdpa", "flex"])
def test_baselines_attend_to_all_keys_and_to_a_window(name):
    case = build(fitted_setting(256, 8))
    case = replace(case, query=case.query.detach(), key=case.key.detach(), value=case.value.detach())
    layer = build_attention("random_mask", d_head=32, n_heads=4, mask_density=0.0, window=8)
    expected = {"sdpa": scaled_dot_product_attention, "flex": lambda *tokens: layer(*tokens).values}[name]
    with torch.compiler.set_stance("force_eager"):  # compilation for a CPU takes half a minute
        [found] = entry(name, case, False).run(None)
    torch.testing.assert_close(found, expected(case.query, case.key, case.value))


@pytest.mark.parametrize(("setting", "dtype"), [(SMALL, torch.bfloat16), (fitted_setting(256, 8), torch.float32)])
def test_a_step_gives_the_gradients_of_the_product_and_the_fit(setting, dtype):
    case = build(setting, dtype=dtype)
    assert [x.dtype for x in case.leaves] == [dtype] * 3 + [torch.float32] * len(case.leaves[3:])
    state = case.generator.get_state()
    found = entry("sbm", case, True).run(None)
    case.generator.set_state(state)
    out = case.layer.train()(case.query, case.key, case.value, generator=case.generator)
    loss = (out.values * case.cotangent).sum() + (0.0 if out.auxiliary_loss is None else out.auxiliary_loss)
    for mine, expected in zip(found, torch.autograd.grad(loss, case.leaves), strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(mine, expected)


def test_the_same_seed_gives_the_same_input_and_leaves_torch_alone():
    state = torch.get_rng_state()
    one, same, other = (build(fitted_setting(64, 4), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.leaves, same.leaves, strict=True))
    assert not torch.equal(one.query, other.query)
