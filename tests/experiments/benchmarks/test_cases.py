import pytest
import torch

from sbmt import SbmtError, sample_edges
from sbmt.experiments.benchmarks.cases import (
    KINDS,
    MADE_UP,
    Setting,
    build,
    fitted_setting,
    n_groups,
    thin_block_model,
)
from sbmt.experiments.data.repeated_tokens import sample_fresh_values
from sbmt.experiments.training import SHIPPED_FITTED, load_run

POINTS = [(256, 0.5, 128), (512, 0.04, 32), (1024, 0.0025, 128)]


def check_density(case):
    setting = case.setting
    with torch.no_grad():
        model = case.block_model()
    assert model.shape == (1, 4, setting.n, setting.n)
    assert model.expected_density().mean().item() == pytest.approx(setting.density, rel=0.1)
    drawn = case.layer(case.query, case.key, case.value).density.mean().item()
    assert drawn == pytest.approx(setting.density, rel=0.1)
    return model


@pytest.mark.parametrize(("n", "density", "n_clusters"), POINTS)
def test_near_constant_memberships_are_alike(n, density, n_clusters):
    model = check_density(build(Setting(n, density, "near-constant", n_clusters)))
    spread = 0.05 if n_clusters == 128 else 0.1
    assert model.query_membership.std() < spread * model.query_membership.mean()


@pytest.mark.parametrize(("n", "density", "n_clusters"), POINTS)
def test_structured_memberships_are_nearly_one_hot_over_groups(n, density, n_clusters):
    setting = Setting(n, density, "structured", n_clusters)
    size = n_groups(setting)
    model = check_density(build(setting))
    group_of_cluster = torch.arange(n_clusters) % size
    for membership in (model.query_membership, model.key_membership):
        of_group = torch.stack([membership[..., group_of_cluster == a].mean(-1) for a in range(size)], -1)
        own, others = of_group.max(-1).values, of_group.sum(-1) - of_group.max(-1).values
        assert own.mean() > 0.65
        assert others.numel() == 0 or (others / max(size - 1, 1)).max() < 0.01
        assert (membership > 0.1).float().mean().item() == pytest.approx(1 / size, rel=0.2)


def test_a_structured_mask_is_block_diagonal_after_sorting():
    case = build(Setting(512, 0.04, "structured"))
    edges = sample_edges(case.block_model())
    group = [x[0, 0].argmax(-1) for x in (case.query, case.key)]
    first_head = edges.to_dense()[0, 0]
    is_within = group[0][:, None] == group[1]
    assert (first_head & is_within).sum() > 0.99 * first_head.sum()
    assert (group[0][1:] >= group[0][:-1]).float().mean() < 0.9  # and the tokens are not sorted


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_input_and_leaves_torch_alone(kind):
    state = torch.get_rng_state()
    setting = Setting(64, 0.04, kind) if kind in MADE_UP else fitted_setting(64, 4.0)
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


def test_fitted_memberships_are_as_training_left_them():
    tokens, labels = sample_fresh_values(4, 256, generator=torch.Generator().manual_seed(0))
    model = load_run(SHIPPED_FITTED).model.eval()
    with torch.no_grad():
        output = model(tokens)
    assert ((output.values.squeeze(-1) > 0) == (labels > 0)).float().mean() > 0.95
    assert output.attention[0].density.mean() < 0.1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 0.1, "structured"), "n ≥ 1"),
        ((8, 0.0, "structured"), "density in"),
        ((8, 1.0, "structured"), "density in"),
        ((8, 0.1, "round"), "kind among 'near-constant', 'structured', 'fitted'"),
        ((8, 0.1, "structured", 0), "n_clusters ≥ 1"),
    ],
)
def test_impossible_settings_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        Setting(*arguments)


@pytest.mark.bad_input
def test_a_density_out_of_reach_is_refused():
    with pytest.raises(SbmtError, match="a density from"):
        build(Setting(64, 1e-9, "structured"))
    with pytest.raises(SbmtError, match="1024 clusters and 4 heads of width 32"):
        build(Setting(64, 0.1, "fitted"))


def test_thin_models_have_their_degree_and_their_certain_rows():
    plain, starred = (thin_block_model(1024, 16.0, n_clusters=8, n_stars=stars) for stars in (0, 3))
    assert plain.expected_mask().sum(-1).mean().item() == pytest.approx(16, rel=0.1)
    is_certain = (starred.expected_mask() > 1 - 1e-6).all(-1)
    assert is_certain.sum() == 3
