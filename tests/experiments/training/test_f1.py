"""F1 of several kinds against counting by hand."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training.f1 import PipelineF1, glue_metrics
from tests.layers.inputs import seeded


def f1_of_class(predictions, labels, c):
    """The usual F1, one class against all others."""
    pairs = list(zip(predictions, labels, strict=True))
    hits = sum(p == y == c for p, y in pairs)
    errors = sum((p == c) != (y == c) for p, y in pairs)
    return 2 * hits / (2 * hits + errors) if hits else 0.0


def macro_f1(predictions, labels):
    present = sorted({*predictions, *labels})
    return sum(f1_of_class(predictions, labels, c) for c in present) / len(present)


def pipeline_f1(predictions, labels):
    """What is left of class 1's F1 when examples of class 2, or taken for it, are thrown away."""
    kept = [(p, y) for p, y in zip(predictions, labels, strict=True) if p != 2 and y != 2]
    return f1_of_class([p for p, _ in kept], [y for _, y in kept], 1)


def draw(n_classes, n=200):
    """Labels, and predictions that are right more often than not."""
    labels, guesses = (torch.randint(n_classes, (n,), generator=seeded(seed)) for seed in (0, 100))
    return guesses.where(torch.rand(n, generator=seeded(200)) < 0.4, labels), labels


def computed(metric, predictions, labels):
    metric.update(predictions, labels)
    return float(metric.compute())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_metrics_equal_counting_by_hand(n_classes):
    predictions, labels = draw(n_classes)
    given = predictions.tolist(), labels.tolist()
    expected = {"macro_f1": macro_f1(*given), "pipeline_f1": pipeline_f1(*given)}
    if n_classes == 2:
        expected["f1"] = f1_of_class(*given, 1)
        assert expected["pipeline_f1"] == pytest.approx(expected["f1"])
    found = {name: computed(metric, predictions, labels) for name, metric in glue_metrics(n_classes).items()}
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_pipelines_f1_flatters_three_classes():
    labels = torch.arange(3).repeat_interleave(6)
    predictions = labels.clone()
    predictions[0::6], predictions[1::6] = (labels[0::6] + 1) % 3, (labels[1::6] + 2) % 3  # 4 of 6 right
    found = {name: computed(metric, predictions, labels) for name, metric in glue_metrics(3).items()}
    assert (predictions == labels).float().mean() == pytest.approx(2 / 3)
    assert found == pytest.approx({"macro_f1": 2 / 3, "pipeline_f1": 0.8})
    only_class_two_wrong = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 2, 2])
    assert computed(PipelineF1(), *only_class_two_wrong) == 1.0


@pytest.mark.bad_input
def test_other_inputs_are_refused():
    for n_classes in (1, 0, 2.0):
        with pytest.raises(SbmtError, match="n_classes ≥ 2"):
            glue_metrics(n_classes)
