"""Fitted masks for models that were trained with full attention, whose weights do not change."""

from sbmt.sparsification.convert import sparsify
from sbmt.sparsification.fit import MaskQuality, MaskReport, fit_block_models, measure_masks
from sbmt.sparsification.huggingface import load_sparsified

__all__ = ["MaskQuality", "MaskReport", "fit_block_models", "load_sparsified", "measure_masks", "sparsify"]
