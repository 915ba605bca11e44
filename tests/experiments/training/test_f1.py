"""F1 of several kinds against counting by hand."""

import pytest
import torch

from sbmt.experiments.training.f1 import glue_f1
from tests.layers.inputs import seeded


def f1_of_class(predictions, labels, c):
    """The usual F1, one class against all others."""
    pairs = list(zip(predictions, labels, strict=True))
    hits = sum(p == y == c for p, y in pairs)
    errors = sum((p == c) != (y == c) for p, y in pairs)
    return 2 * hits / (2 * hits + errors) if hits else 0.0


def f1_by_hand(predictions, labels, n_classes):
    """The pipeline's is what is left of class 1's when examples of class 2, or taken for it, are thrown away."""
    present = sorted({*predictions, *labels})
    kept = [(p, y) for p, y in zip(predictions, labels, strict=True) if p != 2 and y != 2]
    found = {
        "macro_f1": sum(f1_of_class(predictions, labels, c) for c in present) / len(present),
        "pipeline_f1": f1_of_class([p for p, _ in kept], [y for _, y in kept], 1),
    }
    return found | ({"f1": f1_of_class(predictions, labels, 1)} if n_classes == 2 else {})


@pytest.mark.parametrize("n_classes", [2, 3])
def test_metrics_equal_counting_by_hand(n_classes):
    labels, guesses = (torch.randint(n_classes, (200,), generator=seeded(seed)) for seed in (0, 100))
    predictions = guesses.where(torch.rand(200, generator=seeded(200)) < 0.4, labels)
    found = glue_f1(predictions, labels, n_classes)
    assert found == pytest.approx(f1_by_hand(predictions.tolist(), labels.tolist(), n_classes), abs=1e-6)
