"""From a configuration to a model."""

from typing import Any

import torch
from torch import nn

from sbmt.errors import SbmtError
from sbmt.experiments.training.encoder import build_encoder
from sbmt.experiments.training.language import GlueConfig, MlmConfig
from sbmt.experiments.training.long_range import LongRangeConfig
from sbmt.experiments.training.sequence_config import SequenceConfig
from sbmt.models import DualEncoder, MaskedLM, SentenceClassifier, SequenceClassifier


def build_model(config: SequenceConfig, info: dict[str, Any]) -> nn.Module:
    """The model of a configuration, with weights drawn from its seed; torch's global generator is left as it was.

    Args:
        config: What to build.
        info: Of the examples: ``vocab_size``, ``class_names``, ``n_documents``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        encoder = build_encoder(
            config,
            info["vocab_size"],
            config.length,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
        )
        if isinstance(config, MlmConfig):
            return MaskedLM(encoder)
        n_classes = len(info["class_names"])
        if isinstance(config, GlueConfig):
            return SentenceClassifier(encoder, n_classes, pooling=config.pooling, dropout=config.dropout)
        if not isinstance(config, LongRangeConfig):
            raise SbmtError("a configuration of a task", type(config).__name__, "take one of the named ones")
        mean = {"is_padded_mean": config.quirks}
        if info["n_documents"] == 2:
            return DualEncoder(encoder, n_classes, config.d_hidden, pair_features=config.pair_features, **mean)
        return SequenceClassifier(encoder, n_classes, config.d_hidden, **mean)
