"""Fitted masks for models that were trained with full attention, whose weights do not change."""

from sbmt.sparsification.convert import sparsify as sparsify
from sbmt.sparsification.fit import MaskQuality as MaskQuality
from sbmt.sparsification.fit import MaskReport as MaskReport
from sbmt.sparsification.fit import fit_block_models as fit_block_models
from sbmt.sparsification.fit import measure_masks as measure_masks
from sbmt.sparsification.huggingface import load_sparsified as load_sparsified
