"""Replaces the full attention of trained models with fitted masks."""

import copy
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from sbmt.baselines import FullAttention
from sbmt.errors import SbmtError
from sbmt.layers import MultiHeadAttention, SBMAttention, build_attention
from sbmt.sparsification.huggingface import attach, attention_modules
from sbmt.types import AttentionOutput

Model = TypeVar("Model", bound=nn.Module)
DIFFERENT: dict[str, Any] = {"sink": False, "self_loops": False, "n_clusters": 1024, "reweight": 0.005}
"""Where :func:`sparsify` departs from the preset ``fitted``: no sink or self-loops, as before; weights of up to 200."""
FULL = FullAttention, nn.MultiheadAttention  # the classes that fitted masks replace


def sparsify(model: Model, *, edges_per_query: float, **arguments: Any) -> Model:
    """Returns a copy of a trained model with fitted masks in place of full attention; the weights do not change.

    It replaces every :class:`~sbmt.baselines.FullAttention` and every ``torch.nn.MultiheadAttention``, including those
    in ``torch.nn.TransformerEncoderLayer``; a ``torch.nn.MultiheadAttention`` becomes an
    :class:`~sbmt.MultiHeadAttention` with the same projections. Hugging Face models use masks through the attention
    implementation ``"sbmt"``. The new block models are not fitted yet: call :func:`~sbmt.fit_block_models` next.

    Args:
        model: A model trained with full attention.
        edges_per_query: The bound c on the expected number of edges per query at the optimum. The larger it is, the
            closer outputs are to those of full attention.
        **arguments: Further arguments of :class:`~sbmt.SBMAttention`, which override those of the preset ``fitted`` and
            of :data:`DIFFERENT`.

    Raises SbmtError if the model has no full attention, or a variant such as a subclass, which masks cannot replace.

    Example:
        >>> import torch, sbmt
        >>> block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> sparse = sparsify(block, edges_per_query=4.0, n_clusters=64)
        >>> report = sbmt.fit_block_models(sparse, [torch.randn(3, 10, 16)], steps=20)
        >>> sparse(torch.randn(1, 12, 16)).shape
        torch.Size([1, 12, 16])
    """
    settings: dict[str, Any] = {"preset": "fitted"} | DIFFERENT | {"edges_per_query": edges_per_query} | arguments
    computed = [x for m in model.modules() for x in vars(m).values() if isinstance(x, Tensor) and not x.is_leaf]
    copied = copy.deepcopy(model, {id(x): x.detach() for x in computed})  # pruned weights, computed in each call
    holder = nn.ModuleDict({"model": copied})  # so that a model that is a single layer has a parent too
    found = {name: module for name, module in holder.named_modules() if isinstance(module, FULL)}  # each once
    is_huggingface = bool(attention_modules(holder))
    if not found and not is_huggingface:
        do = "pass a model with sbmt's FullAttention, torch.nn.MultiheadAttention, or a Hugging Face encoder"
        raise SbmtError("a model with full attention", f"{type(model).__name__}, which has none", do)
    if is_huggingface:
        attach(holder, settings)
    replacements = {module: _sparse(name, module, settings) for name, module in found.items()}
    for parent in list(holder.modules()):
        for name, child in parent._modules.items():  # named_children() would skip repeated modules
            if child in replacements:
                parent._modules[name] = replacements[child]
        if isinstance(parent, nn.TransformerEncoder):  # its layers could not read nested tensors
            parent.use_nested_tensor = False
    return holder["model"]  # type: ignore[return-value]


def fitted_layers(model: nn.Module) -> dict[str, SBMAttention]:
    """Returns a model's attention layers that learn by likelihood, by name; raises SbmtError if there are none."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, SBMAttention)}
    found = {name: layer for name, layer in layers.items() if layer.learning == "likelihood"}
    if not found:
        raise SbmtError("a model with fitted masks", f"{type(model).__name__}, which has none", "call sparsify first")
    return found


def _sparse(name: str, attention: nn.Module, settings: dict[str, Any]) -> nn.Module:
    if type(attention) not in FULL and not is_parametrized(attention):
        do = "use the base class if it is equivalent, or sparsify the other parts of the model separately"
        expected = f"{' or '.join(kind.__name__ for kind in FULL)} itself, not a subclass"
        raise SbmtError(expected, f"{type(attention).__name__} as {name}", do)
    if isinstance(attention, nn.MultiheadAttention):
        return _from_torch(name, attention, settings)
    sizes: dict[str, Any] = {name: getattr(attention, name) for name in ("d_head", "n_heads", "dropout", "causal")}
    return build_attention("sbm", **settings | sizes).train(attention.training)


def _from_torch(place: str, theirs: nn.MultiheadAttention, settings: dict[str, Any]) -> MultiHeadAttention:
    """Builds a layer with a fitted mask and the projections of PyTorch's layer."""
    if theirs.bias_k is not None or theirs.add_zero_attn or not theirs._qkv_same_embed_dim:
        expected = "torch.nn.MultiheadAttention without add_bias_kv, add_zero_attn, kdim or vdim"
        raise SbmtError(expected, f"{place} with one of them", "sparsify only other parts of the model")
    kind = MultiHeadAttention if theirs.batch_first else SequenceFirst
    first, has_bias = next(theirs.parameters()), theirs.in_proj_bias is not None
    sizes = theirs.embed_dim, theirs.num_heads, theirs.dropout, has_bias
    ours = kind(*sizes, device=first.device, dtype=first.dtype, **settings)
    projections = {name for name, _ in ours.named_parameters() if not name.startswith("attention.")}
    if others := projections ^ theirs.state_dict().keys():
        do = "merge adapters and remove parametrizations and pruning"
        raise SbmtError("projections with plain weights", f"{min(others)} in {place}", do)
    for name in projections:  # the same parameters, which may be frozen or tied
        owner, _, last = name.rpartition(".")
        setattr(ours.get_submodule(owner), last, theirs.get_parameter(name))
    return ours.train(theirs.training)


class SequenceFirst(MultiHeadAttention):
    """A :class:`~sbmt.MultiHeadAttention` for inputs ``(n, batch, embed_dim)``, as for ``batch_first=False``."""

    batch_first = False

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any
    ) -> tuple[Tensor, AttentionOutput | None]:
        """Calls the parent class with the first two axes swapped."""
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        found, attended = super().forward(query, key, value, *arguments, **options)
        return found.transpose(0, 1), attended
