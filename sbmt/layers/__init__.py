"""Attention layers."""

from sbmt.layers.functional import sbm_attention
from sbmt.layers.multi_head import MultiHeadAttention
from sbmt.layers.registry import build_attention, register_attention
from sbmt.layers.sbm import SBMAttention

__all__ = ["MultiHeadAttention", "SBMAttention", "build_attention", "register_attention", "sbm_attention"]
