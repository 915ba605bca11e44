"""Attentions to compare with, behind the same interface."""

from sbmt.baselines.full import FullAttention
from sbmt.baselines.linear import LinearAttention
from sbmt.baselines.linformer import LinformerAttention
from sbmt.baselines.nystromformer import NystromAttention
from sbmt.baselines.performer import PerformerAttention
from sbmt.baselines.random_mask import RandomMaskAttention
from sbmt.baselines.reformer import ReformerAttention
from sbmt.baselines.routing import RoutingAttention

__all__ = [
    "FullAttention",
    "LinearAttention",
    "LinformerAttention",
    "NystromAttention",
    "PerformerAttention",
    "RandomMaskAttention",
    "ReformerAttention",
    "RoutingAttention",
]
