"""What holds of every attention: of the library's, and of those that a module in ``SBMT_TEST_WITH`` registers."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from sbmt import SbmtError, build_attention
from sbmt.layers.registry import ATTENTIONS, RESERVED
from tests.layers.inputs import seeded

pytestmark = pytest.mark.bad_input  # shape checks would take three quarters of the time
HEADS, N, D = 2, 6, 4
CASES = {  # settings that take different ways through the code
    "full": dict(name="full"),
    "random, one key a query": dict(name="random_mask", mask_density=0.03),
    "random, empty": dict(name="random_mask", mask_density=0.0),
    "random, window": dict(name="random_mask", window=2),
    "sbm": dict(name="sbm", n_clusters=3),
    "recommended": dict(name="sbm", n_clusters=3, preset="recommended"),
    "faithful": dict(name="sbm", n_clusters=1, preset="faithful"),
    "fitted": dict(name="sbm", n_clusters=64, preset="fitted"),
    "poisson, dropout, pyg": dict(name="sbm", n_clusters=3, link="poisson", dropout=0.2, backend="pyg"),
    "weight rule, dense": dict(name="sbm", n_clusters=3, gate_rule="weight", backend="dense", sampler="bernoulli"),
    "by position": dict(name="sbm_static", n_clusters=3, n_positions=7),
    "linear": dict(name="linear"),
    "linformer": dict(name="linformer", n_positions=7, n_projected=3),
    "reformer": dict(name="reformer"),
    "performer": dict(name="performer", n_features=5),
    "nystromformer": dict(name="nystromformer"),
    "nystromformer, two landmarks": dict(name="nystromformer", n_landmarks=2),
} | {name: dict(name=name) for name in ATTENTIONS if name not in RESERVED}


@pytest.fixture(params=CASES)
def layer(request):
    return build_attention(**CASES[request.param], d_head=D, n_heads=HEADS).eval()


@pytest.fixture(params=[False, True], ids=["eval", "training"])
def either(layer, request):
    return layer.train(request.param)


class Tokens(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Tensor
    key_mask: Tensor

    def leaves(self):
        return Tokens._make([*(x.clone().requires_grad_() for x in self[:3]), *self[3:]])


def tokens(*n_real, n=N, dtype=torch.float32):
    """Examples in which so many tokens are real, the same at every call."""
    tensors = torch.randn(3, len(n_real), HEADS, n, D, generator=seeded(1)).to(dtype)
    mask = torch.arange(n) < torch.tensor(n_real)[:, None]
    return Tokens._make([*tensors, mask, mask])


PADDED = tokens(N, N - 2, 1)


def attend(layer, given, seed=0, **options):
    generator = None if seed is None else seeded(seed)
    return layer(*given[:3], query_mask=given.query_mask, key_mask=given.key_mask, generator=generator, **options)


def numbers(out, example=slice(None), n=None):
    """Values and densities in a row, of some examples and the first n queries."""
    return torch.cat([x[example].flatten() for x in (out.values[:, :, :n], out.density, out.expected_density)])


def is_random(layer):
    first, *others = (attend(layer, PADDED, seed).values for seed in range(8))
    return not all(torch.allclose(first, other, atol=1e-6) for other in others)


def assert_same(first, second, n_draws=24):
    """Two functions of a seed agree: for one seed, or else in their means over many, within six standard errors."""
    if not torch.allclose(first(0), second(0), rtol=1e-4, atol=1e-4):
        draws = torch.stack([torch.stack([first(-seed), second(seed)]) for seed in range(1, 1 + n_draws)]).double()
        (one, other), spread = draws.mean(0), draws.var(0).sum(0)
        assert ((one - other).abs() <= 6 * (spread / n_draws).sqrt() + 1e-4 * (1 + one.abs())).all()


def test_every_name_is_among_them():
    assert {settings["name"] for settings in CASES.values()} == set(ATTENTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_have_the_shape_and_type_of_the_queries(layer, dtype):
    out = attend(layer.to(dtype), tokens(N, N - 2, dtype=dtype))
    assert out.values.dtype == dtype and out.values.shape == (2, HEADS, N, D)
    assert out.density.shape == out.expected_density.shape == (2, HEADS)


def test_density_is_the_share_of_real_pairs_that_are_edges(layer):
    given = tokens(N, N - 2, 0)
    n_pairs = given.key_mask.sum(1).square().clamp(min=1)[:, None]
    for seed in range(8):
        out = attend(layer, given, seed, return_edges=True)
        torch.testing.assert_close(out.density, out.edges.to_dense().sum((2, 3)) / n_pairs)
        assert ((out.expected_density >= 0) & (out.expected_density <= 1)).all()


def test_edges_join_real_tokens_and_are_all_that_a_query_reads(layer):
    out = attend(layer, PADDED, return_edges=True)
    assert attend(layer, PADDED).edges is None
    mask = out.edges.to_dense()
    assert not (mask & ~(PADDED.query_mask[:, None, :, None] & PADDED.key_mask[:, None, None])).any()
    for j in range(N):
        value = PADDED.value.clone()
        value[:, :, j] += 10.0
        changed = attend(layer, PADDED._replace(value=value)).values
        torch.testing.assert_close(changed[~mask[..., j]], out.values[~mask[..., j]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("masks", ["same", "apart"])
def test_what_padded_tokens_hold_changes_nothing_and_padded_queries_give_zeros(either, masks):
    given = PADDED
    if masks == "apart":
        query_mask, key_mask = (torch.arange(N).expand(3, N) != i for i in (0, N - 1))
        given = PADDED._replace(query_mask=query_mask, key_mask=key_mask)
        try:
            attend(either, given)
        except SbmtError:
            pytest.skip("each token is query and key at once")
    masks = given.query_mask, given.key_mask, given.key_mask
    hidden = (torch.where(m[:, None, :, None], x, 1e4 * x.flip(0)) for m, x in zip(masks, given[:3], strict=True))
    other = Tokens._make([*hidden, *given[3:]])
    assert (attend(either, given).values.transpose(1, 2)[~given.query_mask] == 0).all()
    assert_same(*(lambda seed, x=x: numbers(attend(either, x, seed)).detach() for x in (given, other)))


@torch.no_grad()
def test_an_example_gives_padded_between_others_what_it_gives_alone(layer):
    n = N - 2
    alone = Tokens(*(x[1:2, :, :n] for x in PADDED[:3]), *(mask[1:2, :n] for mask in PADDED[3:]))
    assert_same(
        lambda seed: numbers(attend(layer, alone, seed)),
        lambda seed: numbers(attend(layer, PADDED, seed), slice(1, 2), n),
    )


@torch.no_grad()
def test_a_head_reads_nothing_of_the_other_heads(layer):
    other = Tokens._make([*(torch.cat([x[:, :1], x[:, 1:].flip(0) + 1], 1) for x in PADDED[:3]), *PADDED[3:]])
    assert_same(*(lambda seed, x=x: attend(layer, x, seed).values[:, 0] for x in (PADDED, other)))


@pytest.mark.parametrize(
    "given", [tokens(N, N, N), PADDED, tokens(N, 0, 0), tokens(0, 0), tokens(1, 1, n=1)], ids=lambda x: str(len(x[0]))
)
def test_outputs_and_gradients_are_finite(either, given):
    leaves = given.leaves()
    for seed in range(8):
        out = attend(either, leaves, seed, return_edges=True)
        assert numbers(out).isfinite().all()
        loss = (out.values * leaves.value.detach().flip(2)).sum() + numbers(out).sum()
        if loss.requires_grad:
            loss.backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in (*leaves[:3], *either.parameters()))


def test_gradients_reach_what_is_attended_and_are_those_of_finite_differences(layer):
    """To values alone where masks are drawn."""
    leaves = PADDED.leaves()
    out = attend(layer, leaves, return_edges=True)
    mask = out.edges.to_dense()
    if mask.any():
        (out.values * leaves.query.detach().flip(2)).sum().backward()
        assert (leaves.value.grad[mask.any(2)] != 0).any(-1).all()
        is_chosen = any(x.grad is not None and x.grad.any() for x in leaves[:2])
        assert is_chosen or (mask.sum(-1) <= 1).all()  # a single key has weight 1
    has_draws, few = is_random(layer), tokens(3, n=4, dtype=torch.float64)
    given = (*few[:2], few.value.requires_grad_()) if has_draws else few.leaves()[:3]
    layer = copy.deepcopy(layer).double()
    assert torch.autograd.gradcheck(lambda *x: attend(layer, Tokens._make([*x, *few[3:]]), 7).values, given)


def test_the_generator_or_torch_s_own_governs_all_that_is_random(layer):
    given, free = [], []
    for seed in (*range(8), 0):
        state = torch.manual_seed(seed).get_state()
        given.append(attend(layer, PADDED, 3).values)
        assert torch.equal(state, torch.get_rng_state())
        free.append(attend(layer, PADDED, None).values)
    assert all(torch.allclose(given[0], x, atol=1e-5) for x in given) and torch.allclose(free[0], free[-1], atol=1e-5)
    assert is_random(layer) != all(torch.allclose(free[0], x, atol=1e-6) for x in free)
