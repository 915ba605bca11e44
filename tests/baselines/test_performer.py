"""Performer's features estimate the softmax kernel without bias; given them, it is a quadratic form."""

from itertools import pairwise

import pytest
import torch
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from sbmt.baselines import FullAttention
from sbmt.baselines.performer import PerformerAttention, log_softmax_features, sample_orthogonal_features
from sbmt.errors import SbmtError
from tests.baselines.test_full import masked_case
from tests.layers.inputs import seeded, tokens


def log_kernel(query, key, features):
    """log of mean_w exp(w·x - ‖x‖²/2) exp(w·y - ‖y‖²/2) for all pairs, with x = q / d^¼ and y = k / d^¼."""
    x, y = (t[..., None, :] / t.shape[-1] ** 0.25 for t in (query, key))
    exponents = [(t * features).sum(-1) - t.square().sum(-1) / 2 for t in (x, y)]  # batch heads n n_features
    products = exponents[0][:, :, :, None] + exponents[1][:, :, None]  # batch heads n_queries n_keys n_features
    return products.logsumexp(-1) - torch.tensor(float(len(features))).log()


def quadratic_form(query, key, value, mask, features):
    """Weights as a dense matrix, normalised over the keys of each row; rows without a key are zero."""
    scores = log_kernel(query, key, features)
    top = torch.where(mask, scores.detach(), -torch.inf).amax(-1, keepdim=True)
    weights = torch.where(mask, (scores - top.nan_to_num(neginf=0.0)).clamp(max=0.0), -torch.inf).exp()
    total = weights.sum(-1, keepdim=True)
    return weights @ value / torch.where(total > 0, total, 1.0)


def assert_same_with_gradients(mine, theirs, inputs, atol):
    torch.testing.assert_close(mine, theirs, rtol=0, atol=atol)
    gradients = (torch.autograd.grad(values.square().sum(), inputs) for values in (mine, theirs))
    for x, y in zip(*gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=atol)


@pytest.mark.parametrize("n_features", [1, 6, 16])
@pytest.mark.parametrize("hides_queries", [True, False])
@pytest.mark.parametrize("hides_keys", [True, False])
def test_values_and_gradients_equal_the_quadratic_form(hides_keys, hides_queries, n_features):
    inputs, query_mask, key_mask = masked_case()
    masks = dict(query_mask=query_mask if hides_queries else None, key_mask=key_mask if hides_keys else None)
    mask = torch.ones(3, 2, 5, 6, dtype=torch.bool)
    mask &= query_mask[:, None, :, None] if hides_queries else mask
    mask &= key_mask[:, None, None, :] if hides_keys else mask
    layer = PerformerAttention(4, 2, n_features=n_features).double()
    out = layer(*inputs, **masks, return_edges=True)
    dense = quadratic_form(*inputs, mask, layer.features)
    assert_same_with_gradients(out.values, dense, inputs, 1e-11)
    assert torch.equal(out.edges.to_dense(), mask)
    has_pairs = mask.flatten(2).any(-1).double()
    assert torch.equal(out.density.double(), has_pairs) and torch.equal(out.expected_density.double(), has_pairs)


def test_the_feature_map_is_the_one_of_the_kernel():
    query, key = tokens(seed=1, dtype=torch.float64), tokens(seed=2, dtype=torch.float64)
    features = sample_orthogonal_features(10, 4)
    query_features, key_features = (log_softmax_features(x, features).exp() for x in (query, key))
    torch.testing.assert_close(query_features @ key_features.mT, log_kernel(query, key, features).exp())


@pytest.mark.statistical(share=0.001)
def test_the_kernel_is_estimated_without_bias(judge):
    """Every row of a block of orthogonal features alone has mean exp(q·k / √d), and the variance of a normal vector's.

    With z = x + y the estimate is exp(w·z - ‖z‖²/2 + x·y), so its variance is exp(2 x·y) (exp(‖z‖²) - 1).
    """
    n_blocks, d_head = 200_000, 4
    generator = seeded()
    query, key = torch.randn(2, 3, d_head, generator=generator, dtype=torch.float64) / 2
    key = torch.cat([key, -query[:1]])  # opposites: z = 0, the estimate is certain
    features = sample_orthogonal_features(n_blocks * d_head, d_head, generator=generator)
    query_features, key_features = (
        log_softmax_features(x, features).exp().view(-1, n_blocks, d_head) * (n_blocks * d_head) ** 0.5
        for x in (query, key)
    )
    means = torch.einsum("qnr,knr->qkr", query_features, key_features) / n_blocks  # queries keys rows of a block
    kernel = (query @ key.mT / d_head**0.5).exp()[:, :, None]
    torch.testing.assert_close(means[0, 3], kernel[0, 3].expand(d_head))
    z_norm = (query[:, None] + key).square().sum(-1)[:, :, None] / d_head**0.5
    deviation = kernel * (z_norm.expm1() / n_blocks).sqrt()
    is_random = (z_norm > 1e-9).expand_as(means)
    z_scores = ((means - kernel) / deviation.clamp(min=1e-300))[is_random]
    assert z_scores.numel() == 11 * d_head
    judge(2 * stats.norm.sf(z_scores.abs().numpy()))


@pytest.mark.statistical(share=0.001)
def test_features_point_everywhere_alike_and_have_the_lengths_of_normal_vectors(judge):
    d_head, n_blocks = 3, 20_000
    rows = sample_orthogonal_features(d_head * n_blocks, d_head, generator=seeded()).view(n_blocks, d_head, d_head)
    lengths = rows.norm(dim=-1)
    coordinates = rows / lengths[..., None]  # on the sphere in three dimensions each one is uniform on [-1, 1]
    uniform = [stats.kstest(coordinates[:, r, c], "uniform", (-1, 2)).pvalue for r in range(3) for c in range(3)]
    chi = [stats.kstest(lengths[:, row], "chi", (d_head,)).pvalue for row in range(d_head)]
    independent = [stats.pearsonr(lengths[:, a], lengths[:, b]).pvalue for a, b in ((0, 1), (0, 2), (1, 2))]
    judge(uniform, chi, independent)


@pytest.mark.parametrize("n_features, d_head", [(12, 4), (10, 4), (3, 4), (5, 1)])
def test_features_are_orthogonal_within_a_block_and_not_beyond(n_features, d_head):
    features = sample_orthogonal_features(n_features, d_head)
    assert features.shape == (n_features, d_head)
    products = features @ features.mT
    block = torch.arange(n_features) // d_head
    is_inside = (block[:, None] == block) & ~torch.eye(n_features, dtype=torch.bool)
    assert (products[is_inside].abs() < 1e-12).all()
    assert (products[block[:, None] != block].abs() > 1e-6).all()
    assert (features.norm(dim=1).diff().abs() > 1e-6).all()


def test_it_converges_to_softmax_attention():
    """The error falls as 1/√n_features: by √8 from 64 to 512, and again to 4096, but for the noise of 40 draws.

    Queries and keys are short: for long ones the estimate is so skewed that the law sets in much later.
    """
    query, key, value = (tokens(n=6, seed=seed, dtype=torch.float64) / 4 for seed in (1, 2, 3))
    exact, errors = FullAttention(4, 3)(query, key, value).values, []
    for n_features in (64, 512, 4096):
        layer, squares = PerformerAttention(4, 3, n_features=n_features).double(), []
        for seed in range(40):
            layer.redraw_features(seeded(seed))
            squares.append((layer(query, key, value).values - exact).square().mean())
        errors.append(torch.stack(squares).mean().sqrt())
    ratios = [float(coarse / fine) for coarse, fine in pairwise(errors)]
    assert ratios == pytest.approx([8**0.5] * 2, rel=0.25) and errors[-1] < 0.001, (ratios, errors)


def test_what_stands_at_padding_is_never_seen():
    (query, key, value), query_mask, key_mask = masked_case()
    layer, results = PerformerAttention(4, 2, n_features=16).double(), []
    for filler in (0.0, 1e3, 1e300, float("nan"), float("-inf")):
        inputs = [
            x.detach().masked_fill(~mask[:, None, :, None], filler).requires_grad_()
            for x, mask in ((query, query_mask), (key, key_mask), (value, key_mask))
        ]
        out = layer(*inputs, query_mask=query_mask, key_mask=key_mask).values
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


def test_padding_does_not_drown_real_keys():
    """A padded zero has the largest features of all, beside keys this long: exp(-‖k‖²/2) is not a float32 number."""
    layer, x = PerformerAttention(4, 3, n_features=16), tokens(n=3)
    key = 30 * x + 5
    padded, mask = torch.cat([key, torch.zeros(2, 3, 4, 4)], 2), torch.arange(7).expand(2, 7) < 3
    out = layer(x, padded, torch.cat([x, x, x], 2)[:, :, :7], key_mask=mask).values
    torch.testing.assert_close(out, layer(x, key, x).values)


@pytest.mark.parametrize("scale", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_queries_and_keys_whose_features_miss_each_other(sign, scale):
    """Scores up to ±1e6 where products of features underflow: the quadratic form in logarithms is still met."""
    query, key, value = (tokens(n=5, seed=seed, dtype=torch.float64) for seed in (1, 2, 3))
    query[..., 0], key[..., 0] = scale, sign * scale
    inputs = [query.requires_grad_(), key.requires_grad_(), value.requires_grad_()]
    layer = PerformerAttention(4, 3, n_features=16).double()
    found = layer(*inputs).values
    dense = quadratic_form(*inputs, torch.ones(2, 3, 5, 5, dtype=torch.bool), layer.features)
    assert_same_with_gradients(found, dense, inputs, 1e-12 * scale**2 + 1e-11)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e8])
def test_extreme_inputs_stay_finite(scale):
    query, key = (tokens(seed=seed).mul(scale).requires_grad_() for seed in (1, 2))
    value = tokens(seed=3).requires_grad_()
    values = PerformerAttention(4, 3, n_features=16)(query, key, value).values
    values.square().sum().backward()
    assert values.isfinite().all() and (values != 0).any(-1).all()
    assert all(x.grad.isfinite().all() for x in (query, key, value)) and (value.grad != 0).any()


def test_its_cost_grows_with_the_length():
    layer, counts = PerformerAttention(4, 3, n_features=8), []
    for n in (64, 128):
        x = tokens(n=n)
        with FlopCounterMode(display=False) as counter:
            layer(x, x, x)
        counts.append(counter.get_total_flops())
    assert counts == [2 * 2 * 3 * n * 4 * 8 * 4 for n in (64, 128)]  # four products, multiply and add, 2 · 3 heads


def test_features_come_from_the_global_generator_or_the_one_given():
    torch.manual_seed(5)
    layer = PerformerAttention(4, 3, n_features=10)
    torch.manual_seed(5)
    assert torch.equal(layer.features, sample_orthogonal_features(10, 4).float())
    before, address = layer.features.clone(), layer.features.data_ptr()
    layer.redraw_features(seeded(7))
    assert torch.equal(layer.features, sample_orthogonal_features(10, 4, generator=seeded(7)).float())
    assert not torch.equal(layer.features, before) and layer.features.data_ptr() == address
    layer.redraw_features()
    assert not torch.equal(layer.features, sample_orthogonal_features(10, 4, generator=seeded(7)).float())
    x, kept = tokens(), layer.features.clone()
    layer(x, x, x)
    assert torch.equal(layer.features, kept) and list(layer.parameters()) == []


def test_the_state_dict_goes_round():
    x, layer, other = tokens(), PerformerAttention(4, 3, n_features=8), PerformerAttention(4, 3, n_features=8)
    assert not torch.equal(layer(x, x, x).values, other(x, x, x).values)
    other.load_state_dict(layer.state_dict())
    assert list(layer.state_dict()) == ["features"] and torch.equal(layer(x, x, x).values, other(x, x, x).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_number_types(dtype):
    x, layer = tokens(dtype=dtype), PerformerAttention(4, 3, n_features=16)
    exact, found = layer(*[x.double()] * 3).values, layer(x, x, x)
    assert found.values.dtype == found.density.dtype == dtype
    rounding = torch.finfo(dtype).eps / 2 if dtype == torch.bfloat16 else 1e-5  # nothing but the output is rounded
    torch.testing.assert_close(found.values.double(), exact, rtol=rounding, atol=1e-5)
    assert layer.to(dtype)(x, x, x).values.dtype == dtype


def test_autocast_does_not_round_the_features():
    x, layer = tokens(), PerformerAttention(4, 3, n_features=16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, x, x).values
    assert torch.equal(found, layer(x, x, x).values)


def test_dropout_acts_in_training_only_and_on_the_output():
    x, layer = tokens(n=32), PerformerAttention(4, 3, n_features=16, dropout=0.5)
    plain = layer.eval()(x, x, x).values
    dropped = layer.train()(x, x, x).values
    kept = dropped != 0
    assert (plain != 0).all() and 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * plain[kept])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "replaced, words",
    [
        (dict(d_head=0), "d_head ≥ 1"),
        (dict(n_heads=0), "n_heads ≥ 1"),
        (dict(n_features=0), "n_features ≥ 1"),
        (dict(dropout=1.0), "dropout in"),
    ],
)
def test_bad_settings_are_refused(replaced, words):
    with pytest.raises(SbmtError, match=words):
        PerformerAttention(**dict(d_head=4, n_heads=2) | replaced)


@pytest.mark.bad_input
def test_bad_inputs_are_refused():
    x, layer = tokens(), PerformerAttention(4, 3)
    with pytest.raises(SbmtError, match="as many values as keys"):
        layer(x, x, x[:, :, :3])
    with pytest.raises(SbmtError, match=r"queries and keys of width 4.*\(2, 3, 8, 3\)"):
        layer(x[..., :3], x[..., :3], x)
    for name in ("query_mask", "key_mask"):
        with pytest.raises(SbmtError, match=f"{name} of shape"):
            layer(x, x, x, **{name: torch.ones(2, 5, dtype=torch.bool)})


def test_settings_are_shown():
    expected = "PerformerAttention(d_head=8, n_heads=2, n_features=16, dropout=0.1)"
    assert repr(PerformerAttention(8, 2, n_features=16, dropout=0.1)) == expected
