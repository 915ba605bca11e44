"""Networks built from the attentions."""

from sbmt.models.classifier import SequenceClassifier
from sbmt.models.encoder import Encoder, EncoderBlock, ModelOutput
from sbmt.models.tagger import TokenTagger

__all__ = ["Encoder", "EncoderBlock", "ModelOutput", "SequenceClassifier", "TokenTagger"]
