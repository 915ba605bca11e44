"""Attention layers for comparison, with the same interface as SBM attention."""

from sbmt.baselines.full import FullAttention as FullAttention
from sbmt.baselines.linear import LinearAttention as LinearAttention
from sbmt.baselines.linear import PerformerAttention as PerformerAttention
from sbmt.baselines.linformer import LinformerAttention as LinformerAttention
from sbmt.baselines.nystromformer import NystromAttention as NystromAttention
from sbmt.baselines.random_mask import RandomMaskAttention as RandomMaskAttention
from sbmt.baselines.reformer import ReformerAttention as ReformerAttention
