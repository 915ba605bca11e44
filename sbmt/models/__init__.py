"""Networks built from the attentions: an encoder, and heads on it."""

from sbmt.models.encoder import Encoder, EncoderBlock, ModelOutput
from sbmt.models.heads import DualEncoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger

__all__ = [
    "DualEncoder",
    "Encoder",
    "EncoderBlock",
    "MaskedLM",
    "ModelOutput",
    "SentenceClassifier",
    "SequenceClassifier",
    "TokenTagger",
]
