"""Counts the operations in the matrix products of a forward pass, step by step.

**Convention.** A multiply-add counts as 2, as in ``torch.utils.flop_counter``; the paper does not say what it counts.
Softmaxes, random draws, sorting and embedding look-ups do not count. The forward pass is in eval mode and without
gradients, on sequences without padding and with as many keys as queries; a fit by likelihood is counted, although it
takes place only when gradients are enabled.

**Letters.** In formulas, b is the number of sequences, n of tokens, h of heads, m of edges in all heads and sequences,
and k of clusters, random features, mixtures or landmarks; d is the width of a head. SBM attention has g groups and s
parts per partition; Reformer r rounds with s chunks of c tokens, N = c·s; Nyströmformer's pseudo-inverse has i steps.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from torch import nn

from sbmt import models
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.layers import MultiHeadAttention, SBMAttention
from sbmt.layers.registry import ATTENTIONS, RESERVED

Steps = dict[str, str]
"""The steps of a module by name, each with the formula for its number of operations."""


class OperationRow(NamedTuple):
    """One step of a module, with its formula and number of operations; ``is_attention`` is False for projections."""

    module: str
    part: str
    flops: str
    n_flops: int
    is_attention: bool


class OperationCount(NamedTuple):
    """The operations of a model, step by step, and their sum."""

    rows: tuple[OperationRow, ...]

    @property
    def n_flops(self) -> int:
        """The number of operations in matrix products."""
        return sum(row.n_flops for row in self.rows)

    def attention(self) -> "OperationCount":
        """Returns the operations of the attention layers, without projections and MLPs."""
        return OperationCount(tuple(row for row in self.rows if row.is_attention))


def evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """Evaluates a sum of products of numbers and letters, such as "8·n·d² + 4·n·k·d", for given sizes."""

    def value(factor: str) -> int:
        base = factor.rstrip("²³⁴")
        number = int(base) if base.isdecimal() else sizes[base]
        return number ** ("1²³⁴".index(factor[len(base) :] or "1") + 1)

    return sum(prod(map(value, product.split("·"))) for product in formula.split(" + "))


FORMULAS: dict[str, Steps] = {
    "full": {"all pairs": "4·b·h·n²·d"},
    "linear": {"features": "4·b·h·n·d²"},
    "performer": {"random features": "8·b·h·n·k·d"},
    "linformer": {"mixtures of keys and values": "8·b·h·n·k·d"},
    "nystromformer": {
        "landmarks and their weights": "8·b·h·n·k·d + 2·b·h·k²·d",
        "pseudo-inverse": "8·b·h·i·k³",
        "products with V": "4·b·h·n·k·d + 2·b·h·k²·d",
    },
    "reformer": {"hashing": "2·b·h·r·N·s·d", "attention in chunks": "8·b·h·r·N·c·d"},
    "random_mask": {"draw from a single cluster": "2·b·h·n + 4·b·h"},
}
"""The steps of attention layers by name, except steps along edges. Drawing features is not part of a forward pass."""

LETTERS = {"n_heads": "h", "d_head": "d", "n_clusters": "k", "n_features": "k", "n_projected": "k"}
LETTERS |= {"n_landmarks": "k", "n_iterations": "i", "n_hashes": "r", "n_chunk": "c"}
"""The letters that stand for an attention layer's attributes in formulas."""
NAMES = {ATTENTIONS[name]: name for name in RESERVED}


def _steps_of_attention(layer: Any, n: int) -> tuple[Steps, dict[str, int]]:
    """Returns the steps of an attention layer and the values of the letters in their formulas, except b, n and m."""
    name = NAMES[type(layer)]
    sizes = {letter: getattr(layer, size) for size, letter in LETTERS.items() if hasattr(layer, size)}
    steps = FORMULAS.get(name, {})
    if name == "nystromformer":
        sizes["k"] = min(sizes["k"], n)
    elif name == "reformer":
        sizes["c"] = min(sizes["c"], n)
        sizes["s"] = -(-n // sizes["c"])
        sizes["N"] = sizes["c"] * sizes["s"]
    elif isinstance(layer, SBMAttention):
        is_crossed = layer.membership == "crossed"
        sizes |= {"g": layer.n_groups, "s": layer.clusters.shape[1] // (2 * layer.n_groups)}
        per = "h" if name == "sbm_static" else "b·h"  # all examples share the memberships of positions
        steps = _crossed_steps(layer) if is_crossed else _sbm_steps(layer, per)
    if hasattr(layer, "backend"):  # the dense backend visits all pairs; "auto" is counted along edges
        pairs, pair = ("b·h·n²", "pair") if layer.backend == "dense" else ("m", "edge")
        steps = steps | {f"scores per {pair}": f"2·{pairs}·d", f"weights × V per {pair}": f"2·{pairs}·d"}
    return steps, sizes


def _sbm_steps(layer: SBMAttention, per: str) -> Steps:
    """Returns the steps of inferring and drawing a mask, without repeated draws, for ``per`` sets of memberships."""
    rates, pairs = {"sampling: rates T = Q̂ S": "2·b·h·n·k²"}, {"sampling: every pair": "2·b·h·n²·k"}
    samplers: dict[str, Steps] = {"exact": rates, "fastrg": {}, "bernoulli": rates | pairs}
    steps = {
        "memberships: MLP of Q and K": f"8·{per}·n·d²",
        "memberships: products with C": f"4·{per}·n·k·d",
        "block matrix": "2·h·k²·d",
        **choose("the sampler of a counted layer", layer.sampler, samplers),
    }
    is_linear, is_fitted = layer.link == "bilinear", layer.learning == "likelihood"
    if is_fitted or (is_linear and not layer.reweight):
        steps["sum of all rates"] = "2·b·h·k² + 2·b·h·k"
    if is_fitted or layer.reweight or not is_linear:
        steps["rates per edge"] = "2·m·k"
    return steps


def _crossed_steps(layer: SBMAttention) -> Steps:
    """Returns the steps of inferring and drawing a mask with crossed memberships and the exact sampler."""
    choose("the sampler of a counted layer with crossed memberships", layer.sampler, {"exact": None})
    return {
        "memberships: linear map of Q and K": "4·b·h·n·d²",
        "memberships: products with C": "8·b·h·n·g·s·d",
        "block matrix": "4·h·k·d",
        "sampling: tables of parts": "4·b·h·g·s³",
        "sum of all rates": "4·b·h·g·s³",
        "rates per edge": "8·m·g + 8·b·h·n·g·s",
    }


AROUND = {models.EncoderBlock: ("mlp", "b·n"), models.Encoder: ("token_embedding", "b·n")}
AROUND |= {models.TokenTagger: ("head", "b·n"), models.DualEncoder: ("head", "b")}
AROUND |= {models.SequenceClassifier: ("head", "b"), models.SentenceClassifier: ("head", "b")}
"""For each class, the attribute that contains its linear layers, and the number of vectors that they map."""


def _steps_around(module: Any) -> Steps | None:
    """Returns the steps of a model, a block or projections around its attention; None for other modules."""
    kind, d = type(module), getattr(getattr(module, "encoder", None), "d_model", None)
    if kind is MultiHeadAttention:
        return {"projections": f"8·b·n·{module.embed_dim}²"}
    if kind is models.CausalLM:
        return {"head": f"2·b·n·{d}·{module.encoder.vocab_size}"}
    if kind is models.MaskedLM:
        return {"head": f"2·b·n·{d}² + 2·b·n·{d}·{module.encoder.vocab_size}"}
    if kind not in AROUND:
        return None
    attribute, times = AROUND[kind]
    linear = [layer for layer in getattr(module, attribute).modules() if isinstance(layer, nn.Linear)]
    return {attribute: " + ".join(f"2·{times}·{layer.in_features}·{layer.out_features}" for layer in linear) or "0"}


def _is_known(module: nn.Module) -> bool:
    return type(module) in NAMES or _steps_around(module) is not None


def uncounted(model: nn.Module) -> dict[str, str]:
    """Returns the class names of a model's attention layers whose cost is unknown, by path."""
    inside = {path: module for path, module in model.named_modules() if path.endswith("attention")}
    return {path: type(module).__name__ for path, module in inside.items() if not _is_known(module)}


def count_operations(model: nn.Module, n: int, *, density: float | None = None, batch: int = 1) -> OperationCount:
    """Counts the operations of one forward pass, step by step.

    Args:
        model: A model, block or attention layer of the library.
        n: Number of tokens per sequence.
        density: Share of the pairs that are edges, in [0, 1]; required if masks are drawn.
        batch: Number of sequences, or of pairs of documents for a :class:`~sbmt.models.DualEncoder`.

    Raises SbmtError if a model or attention layer is unknown, or the density is missing or out of range.

    Example:
        >>> from sbmt import build_attention
        >>> count_operations(build_attention("full", d_head=8, n_heads=2), 100).n_flops == 4 * 2 * 100**2 * 8
        True
    """
    check_sizes(n=n, batch=batch)
    if density is not None and not 0 <= density <= 1:
        raise SbmtError(f"density must be in [0, 1], got {density}")
    if not _is_known(model):
        raise SbmtError(f"{type(model).__name__} is not a model or attention layer of the library: count its parts")
    for path, name in uncounted(model).items():
        raise SbmtError(f"the cost of {name} at {path} is unknown: count the other parts of the model")
    rows = []
    for path, module in model.named_modules():
        is_document = isinstance(model, models.DualEncoder) and module is not model
        sizes = {"b": 2 * batch if is_document else batch, "n": n}
        if is_attention := type(module) in NAMES:
            steps, more = _steps_of_attention(module, n)
            sizes |= more
            sizes["m"] = round((density or 0) * sizes["b"] * sizes["h"] * n**2)
            if density is None and any("m" in formula for formula in steps.values()):
                raise SbmtError("the model draws masks: pass density=, the share of pairs that are edges")
        else:
            steps = _steps_around(module) or {}  # empty if an outer module counts them
        for name, formula in steps.items():
            rows.append(OperationRow(path, name, formula, evaluate(formula, sizes), is_attention))
    return OperationCount(tuple(rows))
