"""Compares the library with the model in ``sbmt/reference.py``, and tests the masks that this model draws."""

from pathlib import Path

import pytest
import torch

from sbmt import Encoder, TokenTagger, reference
from sbmt.block_model.fit import density_penalty
from tests.statistics import binomial_p_values, pair_p_values, pattern_p_value

SOURCE = Path(reference.__file__)
VOCABULARY, LABELS, LONGEST, N, CLUSTERS = 11, 3, 9, 7, 5
SIZES = dict(d_model=12, d_hidden=10, n_heads=3, n_layers=2)
N_REAL = torch.tensor([[N], [4], [1], [0]])  # the last example is all padding
IS_REAL = torch.arange(N) < N_REAL
IN_SINGLE = 1e-7  # the library counts edges exactly but divides in float32
VARIANTS = {
    "plain": {},
    "without positions": dict(max_length=0),
    "self-loops": dict(self_loops=True),
    "sparse": dict(offset=-0.3),
    "sparse, self-loops": dict(offset=-0.3, self_loops=True),
    "causal": dict(causal=True),
    "empty": dict(offset=-40.0, exploration=0.0),
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)
each_padding = pytest.mark.parametrize("is_real", [None, IS_REAL], ids=["real", "padded"])


def make_pair(max_length=LONGEST, offset=0.0, **settings):
    """Returns the library's tagger, and the reference with its weights; a membership offset makes masks sparser."""
    torch.manual_seed(0)
    sizes = SIZES | dict(n_clusters=CLUSTERS) | settings
    library = TokenTagger(Encoder(VOCABULARY, max_length or None, **sizes, embedding_std=1.0), LABELS).double()
    with torch.no_grad():
        for name, parameter in library.named_parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
            if name.endswith("clusters"):
                parameter.copy_(torch.rand_like(parameter))  # positive, so the offset moves all memberships
            if name.endswith("node_mlp.2.weight"):
                parameter.mul_(2)
            if name.endswith("node_mlp.2.bias"):
                parameter.add_(offset)
    plain = reference.TokenTagger(LABELS, VOCABULARY, max_length, **sizes).double()
    plain.load_state_dict(library.state_dict())
    return library, plain


def ids():
    return torch.randint(VOCABULARY, (len(N_REAL), N), generator=torch.Generator().manual_seed(1))


def loss_of(logits):
    """Computes a smooth function that distinguishes all entries."""
    return (logits * torch.linspace(-1, 2, logits.numel(), dtype=logits.dtype).view_as(logits)).sin().sum()


def run_both(library, plain, is_real, seed=3):
    """Runs both models along the edges that the library draws; returns their logits and L_s, and layers."""
    theirs = library(ids(), is_real, generator=torch.Generator().manual_seed(seed), return_edges=True)
    masks = [layer.edges.to_dense() for layer in theirs.attention]
    logits, layers = plain(ids(), is_real, masks)
    return (
        (theirs.values, density_penalty(theirs.attention)),
        (logits, reference.density_penalty(layers)),
        layers,
        theirs,
    )


@each_padding
@every_variant
def test_the_library_gives_the_same_values_and_gradients(variant, is_real):
    library, plain = make_pair(**VARIANTS[variant])
    ours, expected, layers, theirs = run_both(library, plain, is_real)
    torch.testing.assert_close(ours[0], expected[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(ours[1], expected[1], rtol=0, atol=IN_SINGLE)
    for layer, attended in zip(layers, theirs.attention, strict=True):
        torch.testing.assert_close(attended.density, layer.density, rtol=0, atol=IN_SINGLE)
        lengths = N_REAL.double() if is_real is not None else torch.full((4, 1), float(N), dtype=torch.float64)
        n_pairs = (lengths * (lengths + 1) / 2 if variant == "causal" else lengths**2).clamp(min=1)
        expected_density = layer.probability.sum((2, 3)) / n_pairs
        torch.testing.assert_close(attended.expected_density, expected_density, rtol=0, atol=1e-12)
    density = layers[0].density.detach()[:2].mean()
    assert 0.01 < density < 0.6 if variant != "empty" else density == 0  # the compared masks are neither full nor empty
    for logits, penalty in (ours, expected):
        (loss_of(logits) + 3 * penalty).backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters()}
    for name, parameter in library.named_parameters():
        mine, other = (torch.zeros_like(parameter) if g is None else g for g in (parameter.grad, expected[name]))
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")
    if variant != "empty":
        assert expected["encoder.blocks.0.attention.attention.clusters"].abs().max() > 1e-6


# --- the masks that the reference draws -------------------------------------------------------------------------------


def draw_masks(n_draws=20_000, *, is_training=True, **settings):
    """Returns masks of one sequence whose last token is padding, edge probabilities, and the pairs of real tokens."""
    _, plain = make_pair(**settings)
    attention = plain.encoder.blocks[0].attention.train(is_training)
    x = torch.randn(1, 5, SIZES["d_model"], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    is_real = torch.arange(5) < 4
    is_pair = (is_real[:, None] & is_real)[None, None]  # 1 1 n n
    with torch.no_grad():
        attended = attention(x.expand(n_draws, -1, -1), is_pair, None, torch.Generator().manual_seed(4))
    return attended.mask.numpy(), attended.probability[0].numpy(), is_pair[0].numpy()


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize(
    "settings, added",
    [
        ({"is_training": False}, 0.0),
        ({"exploration": 0.0}, 0.0),
        ({}, 0.01),
        ({"exploration": 0.9}, 0.9),
        ({"self_loops": True}, 0.01),
    ],
    ids=["eval", "without exploration", "training", "much exploration", "self-loops"],
)
def test_it_draws_every_pair_with_its_probability(settings, added, judge):
    masks, probability, is_pair = draw_masks(**settings)
    assert 0.02 < probability[:, :4, :4].min() and probability.max() < 0.98 and probability.std() > 0.05
    law = (probability + added).clip(max=1) * is_pair
    if "self_loops" in settings:
        law[:, range(4), range(4)] = 1.0
    assert not masks[:, :, 4].any() and not masks[:, :, :, 4].any()
    judge(binomial_p_values(masks.sum(0), len(masks), law))


def test_without_a_generator_the_global_one_is_used_and_masks_differ_between_layers():
    _, plain = make_pair()
    first, again, other = (torch.manual_seed(seed) and plain(ids())[1] for seed in (5, 5, 6))
    assert torch.equal(first[0].mask, again[0].mask) and torch.equal(first[1].mask, again[1].mask)
    assert not torch.equal(first[0].mask, other[0].mask) and not torch.equal(first[0].mask, first[1].mask)


@pytest.mark.statistical(share=0.001)
def test_it_draws_every_pair_independently(judge):
    masks, probability, _ = draw_masks(60_000, offset=1.0)
    cells, p = masks[:, :, :4, :4].reshape(len(masks), -1), probability[:, :4, :4].ravel() + 0.01
    middle = abs(p - 0.5).argsort()[:4]  # from all heads, so every pattern is frequent enough for a chi-square test
    judge(pair_p_values(cells, p), pattern_p_value(cells[:, middle], p[middle]))
