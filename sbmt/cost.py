"""How many operations a forward pass takes, and which steps take them.

**Convention.** ``n_flops`` counts matrix products, a multiply-add as 2, as ``torch.utils.flop_counter`` does; the paper
does not say what it counts. ``n_elementwise`` counts everything else that computes a number: additions outside
products, multiplications, comparisons, elementary functions and random draws, one each, so that a softmax takes 5 per
entry and a LayerNorm 7. Copies, padding, input checks, sorting and embedding look-ups are not counted. The forward pass
is that of eval mode without gradients, on sequences without padding, with as many keys as queries; a fit by likelihood
is counted, although it takes place only where gradients are on.

**Letters.** b sequences, n tokens, h heads, d width of a head, m edges of all heads and sequences; k clusters, random
features, mixtures or landmarks; for SBM attention g groups of clusters, s clusters of a group or parts of a partition,
a parts that a token is in; for Reformer r rounds of hashing with s chunks of c tokens, N = c·s; for Nyströmformer i
steps of the pseudo-inverse. Sizes of linear layers are written as numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from torch import nn

from sbmt import models
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.layers import MultiHeadAttention, SBMAttention
from sbmt.layers.registry import ATTENTIONS, RESERVED


class Part(NamedTuple):
    """One step of a module: formulas of its operations in products, and of all others."""

    name: str
    flops: str = "0"
    elementwise: str = "0"


class OperationRow(NamedTuple):
    """One step of the module at a path: its formulas, and their values. Projections are no part of the attention."""

    module: str
    part: str
    flops: str
    elementwise: str
    n_flops: int
    n_elementwise: int
    is_attention: bool


@dataclass(frozen=True)
class OperationCount:
    """The operations of a model, row by row, and their sums."""

    rows: tuple[OperationRow, ...]

    @property
    def n_flops(self) -> int:
        """Operations in matrix products, a multiply-add as 2."""
        return sum(row.n_flops for row in self.rows)

    @property
    def n_elementwise(self) -> int:
        """All other operations."""
        return sum(row.n_elementwise for row in self.rows)

    def attention(self) -> "OperationCount":
        """The attentions alone, without projections, MLPs and norms."""
        return OperationCount(tuple(row for row in self.rows if row.is_attention))


def evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """The value of a sum of products, each of whole numbers and single letters, all of which have a size.

    Example:
        >>> evaluate("8·n·d² + 4·n·k·d", {"n": 10, "k": 3, "d": 2})
        560
    """

    def value(factor: str) -> int:
        base = factor.rstrip("²³⁴")
        number = int(base) if base.isdecimal() else sizes[base]
        return number ** ("1²³⁴".index(factor[len(base) :] or "1") + 1)

    return sum(prod(map(value, product.split("·"))) for product in formula.split(" + "))


FORMULAS = {
    "full": (Part("all pairs", "4·b·h·n²·d", "6·b·h·n²"),),
    "linear": (Part("features", "4·b·h·n·d²", "23·b·h·n·d"),),
    "performer": (Part("random features", "8·b·h·n·k·d", "6·b·h·n·d + 19·b·h·n·k"),),
    "linformer": (Part("mixtures of keys and values", "8·b·h·n·k·d", "6·b·h·n·k"),),
    "nystromformer": (
        Part("landmarks and their weights", "8·b·h·n·k·d + 2·b·h·k²·d", "b·h·n·d + 8·b·n·k + 14·b·h·n·k + 8·b·h·k²"),
        Part("pseudo-inverse", "8·b·h·i·k³", "7·b·h·i·k² + 5·b·h·k²"),
        Part("products with V", "4·b·h·n·k·d + 2·b·h·k²·d"),
    ),
    "reformer": (
        Part("hashing", "2·b·h·r·N·s·d", "5·b·h·r·N·s"),
        Part("pairs", elementwise="8·b·h·r·N·c + 4·b·h·r²·N·c"),
        Part("attention in chunks", "8·b·h·r·N·c·d", "3·b·h·N·d + 20·b·h·r·N·c + 5·b·h·r·N + 2·b·h·r·N·d"),
    ),
    "random_mask": (Part("draw from a single cluster", "2·b·h·n + 4·b·h", "11·b·h·n + 4·m"),),
    "routing": (Part("nearest centroid", "2·b·h·n·k·d", "3·b·h·n·d + 3·h·k·d + b·h·n·k"),),
}
"""The steps of attentions by name, without edges; drawing features, once, is no part of a forward pass."""

LETTERS = {"n_heads": "h", "d_head": "d", "n_clusters": "k", "n_features": "k", "n_projected": "k", "n_centroids": "k"}
LETTERS |= {"n_landmarks": "k", "n_iterations": "i", "n_hashes": "r", "n_chunk": "c"}
"""What an attention's attributes are called in formulas."""
NAMES = {ATTENTIONS[name]: name for name in RESERVED}


def _cost_of_attention(layer: Any, n: int) -> tuple[tuple[Part, ...], dict[str, int]]:
    """The steps of an attention, and numbers for the letters in their formulas other than b, n and m."""
    name = NAMES[type(layer)]
    sizes = {letter: getattr(layer, size) for size, letter in LETTERS.items() if hasattr(layer, size)}
    parts = FORMULAS.get(name, ())
    if name == "nystromformer":
        sizes["k"] = min(sizes["k"], n)
    elif name == "reformer":
        sizes["c"] = min(sizes["c"], n)
        sizes["s"] = -(-n // sizes["c"])
        sizes["N"] = sizes["c"] * sizes["s"]
    elif isinstance(layer, SBMAttention):
        is_crossed = layer.membership == "crossed"
        sizes |= {"g": layer.n_groups, "s": layer.clusters.shape[1] // (2 * layer.n_groups)}
        parts = _crossed_parts(layer) if is_crossed else _sbm_parts(layer)
    if getattr(layer, "window", None) is not None:
        parts += (Part("union with the window", elementwise="m"),)
    return ((*parts, *_edge_parts(layer.backend)) if hasattr(layer, "backend") else parts), sizes


def _sbm_parts(layer: SBMAttention) -> tuple[Part, ...]:
    """The block model and the draw."""
    is_linear, is_fitted = layer.link == "bilinear", layer.learning == "likelihood"
    rates, draws = Part("sampling: rates T = Q̂ S", "2·b·h·n·k²"), "sampling: draws"
    samplers = {  # repeated draws, and the products that settle an edge in doubt, are not counted
        "exact": (rates, Part("sampling: bounds", elementwise="9·b·h·n·k"), Part(draws, elementwise="4·m")),
        "fastrg": (Part("sampling: tables", elementwise="8·b·h·n·k + 6·b·h·k²"), Part(draws, elementwise="6·m")),
        "bernoulli": (rates, Part("sampling: every pair", "2·b·h·n²·k", "3·b·h·n²")),
    }
    parts = [
        Part("memberships: MLP of Q and K", "8·b·h·n·d²", "6·b·h·n·d"),
        Part("memberships: products with C", "4·b·h·n·k·d", "2·b·h·n·k"),
        Part("block matrix", "2·h·k²·d", f"{5 if is_linear else 3}·h·k²"),
        *choose("sampler whose cost is known", layer.sampler, samplers),
    ]
    if is_fitted or (is_linear and not layer.reweight):
        parts.append(Part("sum of all rates", "2·b·h·k² + 2·b·h·k", "2·b·h·n·k"))
    if is_fitted or layer.reweight or not is_linear:
        parts.append(Part("rates per edge", "2·m·k", "3·m"))
    return tuple(parts)


def _crossed_parts(layer: SBMAttention) -> tuple[Part, ...]:
    """The same with crossed memberships, drawn by the exact sampler."""
    choose("sampler whose cost is known with crossed memberships", layer.sampler, {"exact": None})
    return (
        Part("memberships: linear map of Q and K", "4·b·h·n·d²", "2·b·h·n·d"),
        Part("memberships: products with C", "8·b·h·n·g·s·d", "4·b·h·n·g·s + 40·b·h·n·g"),
        Part("block matrix", "4·h·k·d", "6·h·k"),
        Part("sampling: members of clusters", elementwise="12·b·h·n·g"),
        Part("sampling: tables of parts", "4·b·h·g·s³"),
        Part("sampling: draws", elementwise="4·m + 12·b·h·n·g"),
        Part("sum of all rates", "4·b·h·g·s³", "16·b·h·n·g"),
        Part("rates per edge", "8·m·g + 8·b·h·n·g·s", "3·m"),
    )


def _edge_parts(backend: str) -> tuple[Part, ...]:
    """Attention along edges; the dense backend visits all pairs instead. ``"auto"`` is counted as edges."""
    pairs, pair = ("b·h·n²", "pair") if backend == "dense" else ("m", "edge")
    return (
        Part(f"scores per {pair}", f"2·{pairs}·d", pairs),
        Part(f"softmax per {pair}", elementwise=f"5·{pairs}"),
        Part(f"weights × V per {pair}", f"2·{pairs}·d"),
    )


def _cost_around(module: Any) -> Part | None:
    """What a model, a block or projections do around the attentions inside; None for any other module."""
    kind, d = type(module), getattr(getattr(module, "encoder", module), "d_model", None)
    if kind is MultiHeadAttention:
        has_bias = module.in_proj_bias is not None
        return Part("projections", f"8·b·n·{module.embed_dim}²", f"4·b·n·{module.embed_dim}" if has_bias else "0")
    if kind is models.EncoderBlock:
        return _linear_layers("MLP, norms, residual sums", module.mlp, "b·n", f"16·b·n·{module.mlp[0].in_features}")
    if kind is models.Encoder:
        others = f"{7 if module.position_embedding is None else 8}·b·n·{d}"
        return _linear_layers("embedding, positions, norm", module.token_embedding, "b·n", others)
    if kind is models.TokenTagger:
        return _linear_layers("head", module.head, "b·n", "0")
    if kind is models.MaskedLM:
        n_ids = len(module.bias)
        return Part("head", f"2·b·n·{d}² + 2·b·n·{d}·{n_ids}", f"9·b·n·{d} + b·n·{n_ids}")
    if kind is models.DualEncoder:
        features = f" + 2·b·{d}" if module.pair_features == "products" else ""
        return _linear_layers("means, head", module.head, "b", f"2·b·n·{d}{features}")
    if kind in (models.SequenceClassifier, models.SentenceClassifier):
        is_mean = getattr(module, "pooling", "mean") == "mean"
        return _linear_layers("mean, head", module.head, "b", f"b·n·{d}" if is_mean else "0")
    return None


def _linear_layers(name: str, layers: nn.Module, times: str, others: str) -> Part:
    """Linear layers with activations between them, and other elementwise operations."""
    linear = [layer for layer in layers.modules() if isinstance(layer, nn.Linear)]
    flops = [f"2·{times}·{layer.in_features}·{layer.out_features}" for layer in linear]
    biases = [f"{times}·{layer.out_features}" for layer in linear]
    return Part(name, " + ".join(flops or ["0"]), " + ".join([*biases, *biases[:-1], others]))


def uncounted(model: nn.Module) -> dict[str, str]:
    """Attentions in a model whose cost is not known, by path: they must not come out as free."""
    inside = {path: module for path, module in model.named_modules() if path.rpartition(".")[2] == "attention"}
    return {path: type(module).__name__ for path, module in inside.items() if not _is_known(module)}


def _is_known(module: nn.Module) -> bool:
    return type(module) in NAMES or _cost_around(module) is not None


def count_operations(model: nn.Module, n: int, *, density: float | None = None, batch: int = 1) -> OperationCount:
    """The operations of one forward pass, step by step.

    Args:
        model: A model, block or attention of the library.
        n: Tokens per sequence.
        density: Share of the pairs that are edges of the masks, in [0, 1]; required where a mask is drawn.
        batch: Sequences, or pairs of documents for a :class:`~sbmt.models.DualEncoder`.

    Raises:
        SbmtError: On an unknown model, an attention that is not counted, or a density that is missing or out of range.

    Example:
        >>> from sbmt import build_attention
        >>> count = count_operations(build_attention("full", d_head=8, n_heads=2), 100)
        >>> count.n_flops == 4 * 2 * 100**2 * 8
        True
    """
    check_sizes(n=n, batch=batch)
    if density is not None and not 0 <= density <= 1:
        raise SbmtError("density in [0, 1]", density, "give the share of the pairs that are edges")
    if not _is_known(model):
        raise SbmtError("a model or an attention of the library", type(model).__name__, "count its parts one by one")
    for path, name in uncounted(model).items():
        raise SbmtError(f"an attention of the library at {path}", f"{name}: not counted", "count the rest of the model")
    rows = []
    for path, module in model.named_modules():
        is_document = isinstance(model, models.DualEncoder) and module is not model
        sizes = {"b": 2 * batch if is_document else batch, "n": n}
        if is_attention := type(module) in NAMES:
            parts, more = _cost_of_attention(module, n)
            sizes |= more
            sizes["m"] = round((density or 0) * sizes["b"] * sizes["h"] * n**2)
            if density is None and any("m" in flops + elementwise for _, flops, elementwise in parts):
                raise SbmtError("the density of the masks", "none", "give density=, the share of pairs that are edges")
        else:
            parts = (around,) if (around := _cost_around(module)) else ()  # none: counted with the module around it
        for name, flops, elementwise in parts:
            numbers = evaluate(flops, sizes), evaluate(elementwise, sizes)
            rows.append(OperationRow(path, name, flops, elementwise, *numbers, is_attention))
    return OperationCount(tuple(rows))
