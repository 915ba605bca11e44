"""The several metrics that papers call F1."""

from jaxtyping import Int
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryF1Score, MulticlassF1Score


class PipelineF1(BinaryF1Score):
    """The F1 that the pipeline behind the paper's GLUE results prints: label 1 against label 0.

    With three classes, confusions with class 2 count neither for nor against the model: predictions that are right two
    times out of three, with evenly spread errors, reach 0.8. The paper's 84 on MNLI is probably this figure.
    Source: the Nyströmformer repository's GLUE code, reimplemented.

    Example, by hand: TP = 1 and FN = 1, while both confusions with class 2 go unseen, hence 2 TP / (2 TP + FP + FN):
        >>> import torch
        >>> metric = PipelineF1()
        >>> metric.update(torch.tensor([1, 0, 2, 1]), torch.tensor([1, 1, 1, 2]))
        >>> round(float(metric.compute()), 4)
        0.6667
    """

    def __init__(self) -> None:
        super().__init__(ignore_index=2)

    def update(self, predictions: Int[Tensor, " batch"], labels: Int[Tensor, " batch"]) -> None:
        """Adds a batch."""
        is_left_out = (predictions > 1) | (labels > 1)
        super().update(predictions.clamp(max=1), labels.masked_fill(is_left_out, 2))


def glue_metrics(n_classes: int) -> dict[str, Metric]:
    """F1 of several kinds by name, each to be updated with ``(predictions, labels)``; 0/0 counts as 0.

    ``f1``, for two classes only, is that of label 1, GLUE's second measure on QQP; ``macro_f1`` is the mean over the
    classes that labels or predictions contain; ``pipeline_f1`` is :class:`PipelineF1`.
    """
    binary: dict[str, Metric] = {"f1": BinaryF1Score()} if n_classes == 2 else {}
    return {**binary, "macro_f1": MulticlassF1Score(n_classes, average="macro"), "pipeline_f1": PipelineF1()}
