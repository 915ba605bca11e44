"""Networks built from the attention layers: an encoder, and models that add a head to it."""

from sbmt.models.encoder import Encoder, EncoderBlock, ModelOutput
from sbmt.models.heads import CausalLM, DualEncoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger

__all__ = ["CausalLM", "DualEncoder", "Encoder", "EncoderBlock", "MaskedLM", "ModelOutput"]
__all__ += ["SentenceClassifier", "SequenceClassifier", "TokenTagger"]
