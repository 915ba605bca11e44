"""From a model that was trained with full attention to one with fitted masks, all its weights as they were."""

from sbmt.sparsification.convert import sparsify
from sbmt.sparsification.fit import FitReport, MaskQuality, MaskReport, fit_block_models, measure_masks
from sbmt.sparsification.huggingface import load_sparsified

__all__ = [
    "FitReport",
    "MaskQuality",
    "MaskReport",
    "fit_block_models",
    "load_sparsified",
    "measure_masks",
    "sparsify",
]
