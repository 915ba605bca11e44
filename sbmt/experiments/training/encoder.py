"""The encoder that every configuration describes."""

from sbmt.experiments.training.attention_config import AttentionConfig
from sbmt.models import Encoder


def build_encoder(
    config: AttentionConfig,
    vocab_size: int,
    max_length: int | None,
    *,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
) -> Encoder:
    """An encoder with the network, the attention and the start of a configuration; weights from torch's generator."""
    return Encoder(
        vocab_size,
        max_length,
        d_model=config.d_model,
        d_hidden=config.d_hidden,
        n_heads=config.n_heads,
        n_layers=config.n_layers,
        dropout=dropout,
        attention_dropout=attention_dropout,
        embedding_std=config.embedding_std,
        attention=config.attention,
        has_tied_start=config.has_tied_start,
        **config.attention_arguments(),
    )
