"""Networks built from the attentions."""

from sbmt.models.classifier import SequenceClassifier
from sbmt.models.dual_encoder import DualEncoder
from sbmt.models.encoder import Encoder, EncoderBlock, ModelOutput
from sbmt.models.masked_lm import MaskedLM
from sbmt.models.sentence_classifier import SentenceClassifier
from sbmt.models.tagger import TokenTagger

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
