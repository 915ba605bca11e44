"""Attention layers."""

from sbmt.layers.multi_head import MultiHeadAttention
from sbmt.layers.registry import build_attention, register_attention
from sbmt.layers.sbm_attention import SBMAttention, sbm_attention

__all__ = ["MultiHeadAttention", "SBMAttention", "build_attention", "register_attention", "sbm_attention"]
