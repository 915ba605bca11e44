"""The different scores that papers call F1."""

from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics.functional.classification import binary_f1_score, multiclass_f1_score

Labels = Int[Tensor, " n"]


def pipeline_f1(predictions: Labels, labels: Labels) -> Float[Tensor, ""]:
    """Computes F1 of label 1 against label 0, which the code behind the paper's GLUE results prints.

    With three classes, confusions with class 2 are ignored. If two thirds of the predictions are right and the errors
    are spread evenly, the score is therefore 0.8. The paper's 84 on MNLI is probably this score.
    Source: the Nyströmformer repository's GLUE code, reimplemented.

    Example, in which both confusions with class 2 are ignored, so TP = 1, FN = 1 and 2 TP / (2 TP + FP + FN) = 2/3:
        >>> import torch
        >>> round(float(pipeline_f1(torch.tensor([1, 0, 2, 1]), torch.tensor([1, 1, 1, 2]))), 4)
        0.6667
    """
    is_left_out = (predictions > 1) | (labels > 1)
    return binary_f1_score(predictions.clamp(max=1), labels.masked_fill(is_left_out, 2), ignore_index=2)


def glue_f1(predictions: Labels, labels: Labels, n_classes: int) -> dict[str, float]:
    """Returns several kinds of F1 by name, with 0/0 counted as 0.

    For two classes, ``f1`` is the F1 of label 1, which GLUE reports for QQP. ``macro_f1`` is the mean over the classes
    that occur in labels or predictions, and ``pipeline_f1`` is the result of :func:`pipeline_f1`.
    """
    macro = multiclass_f1_score(predictions, labels, n_classes, average="macro")
    found = {"macro_f1": macro, "pipeline_f1": pipeline_f1(predictions, labels)}
    if n_classes == 2:
        found = {"f1": binary_f1_score(predictions, labels)} | found
    return {name: float(x) for name, x in found.items()}
