"""From a model that was trained with full attention to one with fitted masks, all its weights as they were.

:func:`sparsify` puts the masks in (:mod:`~sbmt.sparsification.convert`), :func:`fit_block_models` fits them
(:mod:`~sbmt.sparsification.fit`), :func:`measure_masks` says what they see (:mod:`~sbmt.sparsification.recall`), and
:func:`fine_tune` trains the whole under them (:mod:`~sbmt.sparsification.fine_tuning`).
Models of Hugging Face Transformers have a file of their own (:mod:`~sbmt.sparsification.huggingface`).
"""

from sbmt.sparsification.convert import sparsify
from sbmt.sparsification.fine_tuning import fine_tune
from sbmt.sparsification.fit import FitReport, fit_block_models
from sbmt.sparsification.huggingface import load_sparsified
from sbmt.sparsification.recall import MaskQuality, MaskReport, measure_masks

__all__ = [
    "FitReport",
    "MaskQuality",
    "MaskReport",
    "fine_tune",
    "fit_block_models",
    "load_sparsified",
    "measure_masks",
    "sparsify",
]
