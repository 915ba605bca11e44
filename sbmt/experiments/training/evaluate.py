"""How good a model is on sequences it has not seen."""

from dataclasses import dataclass

import torch
from torch import nn

from sbmt.errors import check_sizes
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens

_TEST_SEED = 1_000_003  # test sequences never share the seed of a training run's data
_BATCH = 64


@dataclass(frozen=True)
class Evaluation:
    """Means over the test sequences.

    Attributes:
        loss: Binary cross entropy in nats.
        accuracy: Share of tokens labelled right, in [0, 1].
        density: Share of pairs attended, in [0, 1].
        expected_density: Mean edge probability, in [0, 1].
    """

    loss: float
    accuracy: float
    density: float
    expected_density: float


@torch.no_grad()
def evaluate(model: nn.Module, length: int, n_sequences: int, *, n_samples: int = 1, seed: int = 0) -> Evaluation:
    """Evaluates a tagger on fresh repeated-tokens sequences.

    Args:
        model: A :class:`~sbmt.models.TokenTagger` with one label, on any device. It is put in eval mode and left in
            its own.
        length: Tokens per sequence.
        n_sequences: How many sequences.
        n_samples: Masks drawn per sequence; logits are averaged over them (Theorem 1 speaks of that mean).
        seed: Seed of sequences and masks.
    """
    check_sizes(n_sequences=n_sequences, n_samples=n_samples)
    was_training = model.training
    model.eval()
    data = torch.Generator().manual_seed(_TEST_SEED + seed)
    masks = torch.Generator().manual_seed(2 * _TEST_SEED + seed)
    totals = torch.zeros(4, dtype=torch.float64)
    device = next(model.parameters()).device
    for first in range(0, n_sequences, _BATCH):
        size = min(_BATCH, n_sequences - first)
        tokens, labels = (t.to(device) for t in sample_repeated_tokens(size, length, generator=data))
        outputs = [model(tokens, generator=masks) for _ in range(n_samples)]
        logits = torch.stack([o.values.squeeze(-1) for o in outputs]).mean(0)  # batch n
        layers = [attended for o in outputs for attended in o.attention]
        means = torch.stack(
            [
                nn.functional.binary_cross_entropy_with_logits(logits, labels).double(),
                ((logits > 0) == labels.bool()).double().mean(),
                torch.stack([attended.density.double().mean() for attended in layers]).mean(),
                torch.stack([attended.expected_density.double().mean() for attended in layers]).mean(),
            ]
        )
        totals += size * means.cpu()
    model.train(was_training)
    return Evaluation(*(totals / n_sequences).tolist())
