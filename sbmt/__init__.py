"""SBM-Transformer: attention along edges that are sampled from a block model inferred by the network."""

import sbmt.interrupt  # noqa: F401 - first, since the imports below take seconds

# isort: split
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from sbmt.attention import available_backends, edge_attention
from sbmt.block_model.fit import auxiliary_loss, density_penalty, sampled_density
from sbmt.block_model.model import BlockModel, ExtraKeys, straight_through_gate
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from sbmt.layers import MultiHeadAttention, SBMAttention, build_attention, sbm_attention
from sbmt.models import CausalLM, DualEncoder, Encoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger
from sbmt.samplers import sample_edges
from sbmt.sparsification import fit_block_models, sparsify
from sbmt.types import AttentionOutput

if TYPE_CHECKING:
    from sbmt import cost as cost
    from sbmt import experiments as experiments
    from sbmt import testing as testing
    from sbmt.attention.message_passing import EdgeAttention as EdgeAttention

__version__ = "0.1.0"

__all__ = ["AttentionOutput", "BlockModel", "CausalLM", "DualEncoder", "EdgeAttention", "EdgeList", "Encoder"]
__all__ += ["ExtraKeys", "MaskedLM", "MultiHeadAttention", "SBMAttention", "SbmtError", "SentenceClassifier"]
__all__ += ["SequenceClassifier", "TokenTagger", "auxiliary_loss", "available_backends", "build_attention"]
__all__ += ["density_penalty", "edge_attention", "fit_block_models", "sample_edges", "sampled_density"]
__all__ += ["sbm_attention", "sparsify", "straight_through_gate"]

_ON_DEMAND = ("cost", "experiments", "testing")

if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names

    def __getattr__(name: str) -> ModuleType | type:
        """Imports modules such as ``sbmt.testing`` on first use, so that ``import sbmt`` is fast."""
        if name == "EdgeAttention":
            return import_module("sbmt.attention.message_passing").EdgeAttention
        if name in _ON_DEMAND:
            return import_module(f"sbmt.{name}")
        raise AttributeError(f"module 'sbmt' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_ON_DEMAND})
