"""Attentions to compare with, behind the same interface."""

from sbmt.baselines.full import FullAttention
from sbmt.baselines.random_mask import RandomMaskAttention

__all__ = ["FullAttention", "RandomMaskAttention"]
