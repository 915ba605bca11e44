import pytest
import torch

from sbmt import SbmtError, sample_edges
from sbmt.experiments.benchmarks.cases import MADE_UP, Setting, build, fitted_setting


@pytest.mark.parametrize("kind", MADE_UP)
@pytest.mark.parametrize(("n", "density", "n_clusters"), [(256, 0.5, 128), (512, 0.04, 32), (1024, 0.0025, 128)])
def test_made_up_inputs_have_the_density_asked_for(kind, n, density, n_clusters):
    case = build(Setting(n, density, kind, n_clusters))
    with torch.no_grad():
        model = case.block_model()
    assert model.shape == (1, 4, n, n)
    assert model.expected_density().mean().item() == pytest.approx(density, rel=0.1)
    drawn = case.layer(case.query, case.key, case.value).density.mean().item()
    assert drawn == pytest.approx(density, rel=0.1)
    if kind == "near-constant":
        assert model.query_membership.std() < 0.1 * model.query_membership.mean()


def test_a_structured_mask_is_block_diagonal_after_sorting():
    case = build(Setting(512, 0.04, "structured"))
    edges = sample_edges(case.block_model())
    group = [x[0, 0].argmax(-1) for x in (case.query, case.key)]
    first_head = edges.to_dense()[0, 0]
    is_within = group[0][:, None] == group[1]
    assert (first_head & is_within).sum() > 0.99 * first_head.sum()
    assert (group[0][1:] >= group[0][:-1]).float().mean() < 0.9  # and the tokens are not sorted


@pytest.mark.parametrize("setting", [Setting(64, 0.04, "structured"), fitted_setting(64, 4.0)], ids=str)
def test_the_same_seed_gives_the_same_input_and_leaves_torch_alone(setting):
    state = torch.get_rng_state()
    one, same, other = (build(setting, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.leaves, same.leaves, strict=True))
    assert not torch.equal(one.query, other.query)
    assert torch.equal(one.cotangent, same.cotangent)
    assert all(leaf.requires_grad and leaf.is_leaf for leaf in one.leaves)


@pytest.mark.parametrize(("n", "keys"), [(128, 4.0), (1500, 16.0)])
def test_fitted_memberships_draw_as_many_keys_as_are_asked_for(n, keys):
    case = build(fitted_setting(n, keys))
    attended = case.layer.eval()(case.query, case.key, case.value).density * n
    assert attended.mean().item() == pytest.approx(keys, rel=0.1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 0.1, "structured"), "n ≥ 1"),
        ((8, 1.0, "structured"), "density in"),
        ((8, 0.1, "round"), "kind among 'near-constant', 'structured', 'fitted'"),
        ((64, 1e-9, "structured"), "a density from"),
        ((64, 0.1, "fitted"), "1024 clusters and 4 heads of width 32"),
    ],
)
def test_impossible_settings_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        build(Setting(*arguments))
