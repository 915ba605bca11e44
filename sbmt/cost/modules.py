"""Costs of everything around the attention."""

from collections.abc import Callable
from typing import Any

from torch import nn

from sbmt.cost.parts import ModuleCost, Part, part
from sbmt.layers import MultiHeadAttention
from sbmt.models import (
    DualEncoder,
    Encoder,
    EncoderBlock,
    MaskedLM,
    SentenceClassifier,
    SequenceClassifier,
    TokenTagger,
)


def multi_head_cost(layer: MultiHeadAttention) -> ModuleCost:
    """The four projections."""
    has_bias = layer.in_proj_bias is not None
    parts = (
        part("projections to Q, K and V", "6·b·n·D²", "3·b·n·D" if has_bias else "0"),
        part("output projection", "2·b·n·D²", "b·n·D" if has_bias else "0"),
    )
    return ModuleCost(parts, {"D": layer.embed_dim})


def block_cost(block: EncoderBlock) -> ModuleCost:
    """Two norms, the MLP and two residual sums; the attention is counted separately."""
    first = _linears(block.mlp)[0]
    parts = (
        part("norms", elementwise="14·b·n·D"),
        part("MLP", "4·b·n·D·H", "2·b·n·H + b·n·D"),
        part("residual sums", elementwise="2·b·n·D"),
    )
    return ModuleCost(parts, {"D": first.in_features, "H": first.out_features})


def encoder_cost(encoder: Encoder) -> ModuleCost:
    """The embedding of vectors, positions added, if there are any, and the last norm; looking ids up is free."""
    sizes: dict[str, int]
    vectors: tuple[Part, ...]
    sizes, vectors = {"D": encoder.d_model}, ()
    if isinstance(encoder.token_embedding, nn.Linear):
        sizes["V"] = encoder.token_embedding.in_features
        vectors = (part("embedding of vectors", "2·b·n·V·D", "b·n·D"),)
    positions = () if encoder.position_embedding is None else (part("positions", elementwise="b·n·D"),)
    return ModuleCost((*vectors, *positions, part("last norm", elementwise="7·b·n·D")), sizes)


def classifier_cost(model: SequenceClassifier) -> ModuleCost:
    """The mean over tokens, and the head."""
    first, last = _linears(model.head)
    parts = (part("mean over tokens", elementwise="b·n·D"), part("head", "2·b·D·H + 2·b·H·L", "2·b·H + b·L"))
    sizes = {"D": first.in_features, "H": first.out_features, "L": last.out_features}
    return ModuleCost(parts, sizes)


def dual_encoder_cost(model: DualEncoder) -> ModuleCost:
    """The means of both documents, their features, and the head; b counts pairs here."""
    first, *_, last = _linears(model.head)
    parts: list[Part] = [part("means over tokens", elementwise="2·b·n·D")]
    if model.pair_features == "products":
        parts.append(part("product and difference", elementwise="2·b·D"))
        parts.append(part("head", "2·b·F·H + 2·b·H·L", "2·b·H + b·L"))
    else:
        parts.append(part("head", "2·b·F·H + 2·b·H·E + 2·b·E·L", "2·b·H + 2·b·E + b·L"))
    sizes = {"D": model.encoder.d_model, "F": first.in_features, "H": first.out_features}
    return ModuleCost(tuple(parts), sizes | {"E": last.in_features, "L": last.out_features})


def sentence_classifier_cost(model: SentenceClassifier) -> ModuleCost:
    """The mean over tokens, unless the first token is used instead, and the head."""
    first, last = _linears(model.head)
    pooling = (part("mean over tokens", elementwise="b·n·D"),) if model.pooling == "mean" else ()
    head = part("head", "2·b·D² + 2·b·D·L", "2·b·D + b·L")
    return ModuleCost((*pooling, head), {"D": first.in_features, "L": last.out_features})


def masked_lm_cost(model: MaskedLM) -> ModuleCost:
    """The head at every token; if only some tokens are predicted, it costs their share."""
    vocab_size, d_model = model.encoder.token_embedding.weight.shape
    head = part("head", "2·b·n·D² + 2·b·n·D·L", "9·b·n·D + b·n·L")
    return ModuleCost((head,), {"D": d_model, "L": vocab_size})


def tagger_cost(model: TokenTagger) -> ModuleCost:
    """The head at every token."""
    sizes = {"D": model.head.in_features, "L": model.head.out_features}
    return ModuleCost((part("head", "2·b·n·D·L", "b·n·L"),), sizes)


def _linears(layers: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


MODULES: dict[type[nn.Module], Callable[[Any], ModuleCost]] = {
    SequenceClassifier: classifier_cost,
    DualEncoder: dual_encoder_cost,
    TokenTagger: tagger_cost,
    SentenceClassifier: sentence_classifier_cost,
    MaskedLM: masked_lm_cost,
    Encoder: encoder_cost,
    EncoderBlock: block_cost,
    MultiHeadAttention: multi_head_cost,
}
"""What is counted besides attentions. Modules inside these (linear layers, norms) are counted with them."""
