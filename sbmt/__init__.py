"""SBM-Transformer: attention along edges sampled from a block model that the network infers itself."""

from sbmt.attention import EdgeAttention, available_backends, edge_attention
from sbmt.block_model import BlockModel
from sbmt.density import density_penalty, sampled_density
from sbmt.edges import EdgeList
from sbmt.errors import SbmtError
from sbmt.exploration import ExtraKeys
from sbmt.layers import MultiHeadAttention, SBMAttention, build_attention, sbm_attention
from sbmt.models import DualEncoder, Encoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger
from sbmt.samplers import sample_edges
from sbmt.straight_through import straight_through_gate
from sbmt.types import AttentionOutput

__version__ = "0.1.0"

__all__ = [
    "AttentionOutput",
    "BlockModel",
    "DualEncoder",
    "EdgeAttention",
    "EdgeList",
    "Encoder",
    "ExtraKeys",
    "MaskedLM",
    "MultiHeadAttention",
    "SBMAttention",
    "SbmtError",
    "SentenceClassifier",
    "SequenceClassifier",
    "TokenTagger",
    "available_backends",
    "build_attention",
    "density_penalty",
    "edge_attention",
    "sample_edges",
    "sampled_density",
    "sbm_attention",
    "straight_through_gate",
]
