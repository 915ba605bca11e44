"""Computes gradients of an expected loss by plain loops over all masks of small graphs."""

import itertools

import torch

from sbmt.experiments.studies.gradient_estimators import ESTIMATORS
from tests.layers.inputs import seeded

WIDTH, D_VALUE = 3, 2


def inputs(n_queries=2, n_keys=3, seed=0):
    generator = seeded(seed)
    shapes = ((n_queries, WIDTH), (n_keys, WIDTH), (n_keys, D_VALUE))
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def wavy(values):
    """Computes a smooth loss, neither convex nor concave, which distinguishes all entries."""
    return (
        (values * torch.linspace(-1, 2, values[0].numel(), dtype=values.dtype).view(values.shape[1:])).sin().sum((1, 2))
    )


def linear(values):
    return (values * torch.linspace(-1, 2, values[0].numel(), dtype=values.dtype).view(values.shape[1:])).sum((1, 2))


def convex(values):
    return values.exp().sum((1, 2)) + values.square().sum((1, 2))


# Asymmetric; one edge is certain, one impossible, one nearly so.
PROBABILITY = torch.tensor([[0.7, 1.0, 0.1], [0.35, 0.0, 0.96]], dtype=torch.float64)
RANDOM = (PROBABILITY > 0) & (PROBABILITY < 1)


def all_masks(probability):
    """Yields every possible mask with its probability."""
    choices = [(0.0,) if p == 0 else (1.0,) if p == 1 else (0.0, 1.0) for p in probability.flatten().tolist()]
    for cells in itertools.product(*choices):
        mask = torch.tensor(cells, dtype=torch.float64).view_as(probability)
        yield mask, float(torch.where(mask > 0, probability, 1 - probability).prod())


def read(query, key, value, mask):
    """Returns the scores, weights and values of one mask, row by row."""
    scores = query @ key.T / WIDTH**0.5
    weights = torch.zeros_like(scores)
    for row in range(len(query)):
        drawn = mask[row] > 0
        if drawn.any():
            weights[row, drawn] = scores[row, drawn].exp() / scores[row, drawn].exp().sum()
    return scores, weights, weights @ value


def expected_loss(query, key, value, probability, loss):
    return sum(chance * float(loss(read(query, key, value, mask)[2][None])) for mask, chance in all_masks(probability))


def guesses_by_hand(query, key, value, mask, loss):
    """Computes the three straight-through estimates under one mask by the chain rule."""
    scores, weights, values = read(query, key, value, mask)
    values.requires_grad_()
    slope = torch.autograd.grad(loss(values[None]).sum(), values)[0]
    better = slope @ value.T - (slope * values.detach()).sum(-1, keepdim=True)  # slope · (v_j − h_i)
    removal = torch.zeros_like(weights)
    for row, column in mask.nonzero().tolist():
        is_alone = mask[row].sum() == 1  # without the edge, the query's output is zero
        w = weights[row, column]
        removal[row, column] = slope[row] @ value[column] if is_alone else w / (1 - w) * better[row, column]
    return {"score": scores * weights * better, "weight": weights * better, "removal": removal}


def moments_by_hand(query, key, value, probability, loss, inclusion):
    """Returns the mean and variance of every estimator, for masks drawn with probability ``inclusion``."""
    baseline = expected_loss(query, key, value, inclusion, loss)
    first = {name: torch.zeros_like(probability) for name in ESTIMATORS if name != "exact"}
    second = {name: torch.zeros_like(probability) for name in first}
    for mask, chance in all_masks(inclusion):
        guesses = guesses_by_hand(query, key, value, mask, loss)
        guesses |= {f"{name}/q": guess / inclusion.clamp(min=1e-9) for name, guess in guesses.items()}
        odds = torch.where(mask > 0, 1 / inclusion, -1 / (1 - inclusion))
        guesses["reinforce"] = (loss(read(query, key, value, mask)[2][None]) - baseline) * odds
        for name, guess in guesses.items():
            learned = torch.where(RANDOM, guess, 0.0)
            first[name] += chance * learned
            second[name] += chance * learned**2
    return first, {name: second[name] - first[name] ** 2 for name in first}
