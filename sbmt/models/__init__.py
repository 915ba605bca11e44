"""Networks built from the attentions: an encoder, and heads on it."""

from sbmt.models.encoder import Encoder as Encoder
from sbmt.models.encoder import EncoderBlock as EncoderBlock
from sbmt.models.encoder import ModelOutput as ModelOutput
from sbmt.models.heads import CausalLM as CausalLM
from sbmt.models.heads import DualEncoder as DualEncoder
from sbmt.models.heads import MaskedLM as MaskedLM
from sbmt.models.heads import SentenceClassifier as SentenceClassifier
from sbmt.models.heads import SequenceClassifier as SequenceClassifier
from sbmt.models.heads import TokenTagger as TokenTagger
