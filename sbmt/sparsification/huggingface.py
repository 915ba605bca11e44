"""Fitted masks in Hugging Face Transformers models, through the attention implementation ``"sbmt"``."""

from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError, describe
from sbmt.layers import build_attention

NAME, CHILD = "sbmt", "fitted_mask"  # names of the implementation, and of the SBMAttention in an attention module
HARMLESS = frozenset({"cache_position", "num_items_in_batch", "output_attentions", "output_hidden_states",
                      "output_router_logits", "position_ids", "return_dict", "use_cache"})  # fmt: skip
"""Arguments of attention functions that do not change the scores."""
Model = TypeVar("Model", bound=nn.Module)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Returns the modules of a model that use Transformers' attention interface."""
    theirs = [module for module in model.modules() if type(module).__module__.startswith("transformers.")]
    return [module for module in theirs if hasattr(module, "is_causal")]


def attach(model: nn.Module, settings: dict[str, Any]) -> None:
    """Adds a fitted mask to every attention module, and stores the settings in ``config.sbmt`` for loading.

    Masks are causal if the modules are. Raises SbmtError if a module attends to another sequence or within a window, if
    only some modules are causal, or if JSON cannot represent the settings.
    """
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    for name, value in settings.items():
        if not isinstance(value, (str, int, float, type(None))):
            do = "pass a number or a string, since save_pretrained writes it to config.json"
            raise SbmtError(f"{name} to be of a type that JSON can store", type(value).__name__, do)
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, real_tokens)
    modules = attention_modules(model)
    configs = [getattr(module, "config", None) for module in modules]
    are_causal = {bool(m.is_causal) and getattr(c, "is_causal", True) for m, c in zip(modules, configs, strict=True)}
    are_causal |= {settings[x] for x in ("causal",) if x in settings}
    if len(are_causal) > 1:
        kinds = ", ".join(sorted({type(module).__name__ for module in modules}))
        raise SbmtError(f"all masks or none must be causal, got both ({kinds}): sparsify the encoder or decoder alone")
    settings = settings | {"causal": are_causal.pop()}
    for module in modules:
        name, config = type(module).__name__, getattr(module, "config", None)
        is_decoder = getattr(module, "is_decoder", getattr(config, "is_decoder", False))
        if "Cross" in name or getattr(module, "is_cross_attention", False) or (is_decoder and not settings["causal"]):
            do = "sparsify only the encoder"
            raise SbmtError(f"a mask cannot replace {name}, which attends to another sequence: {do}")
        if getattr(module, "sliding_window", None) is not None:
            raise SbmtError("attention without a window", f"{name} with one", "leave this sparse attention as it is")
        d_head = _number(module, "head_dim", "attention_head_size")
        n_heads = _number(module, "num_attention_heads", "num_heads", "n_heads")
        fitted = build_attention("sbm", d_head=d_head, n_heads=n_heads, **settings)
        first = next(p for p in module.parameters() if p.is_floating_point())  # of a projection, even a wrapped one
        module.add_module(CHILD, fitted.to(first.device, first.dtype).train(module.training))
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.config.sbmt = dict(settings)
            module.set_attn_implementation(NAME)


def load_sparsified(model_class: type[Model], folder: Path | str, **arguments: Any) -> Model:
    """Loads a sparsified model that ``save_pretrained`` wrote; ``from_pretrained`` would drop its block models.

    For example, call ``load_sparsified(BertForMaskedLM, "sparse-bert")``. ``from_pretrained`` also gets ``arguments``.
    """
    if not hasattr(model_class, "from_pretrained"):
        raise SbmtError("a model class such as BertForMaskedLM", repr(model_class), "pass the class of the saved model")

    def build(self: nn.Module, config: Any, *rest: Any, **named: Any) -> None:  # so that their weights are loaded
        model_class.__init__(self, config, *rest, **named)
        if getattr(config, "sbmt", None) is None:
            raise SbmtError(f"a sparsified model in {folder}", "a model without masks", "create one with sbmt.sparsify")
        attach(self, config.sbmt)

    named_alike = {"__init__": build, "__module__": model_class.__module__}  # weights are named after the class
    loader: Any = type(model_class.__name__, (model_class,), named_alike)
    model, found = loader.from_pretrained(folder, **arguments, output_loading_info=True)
    if missing := [name for name in found["missing_keys"] if f".{CHILD}." in name]:
        raise SbmtError(f"weights of all block models in {folder}", f"no {min(missing)}", "save the sparsified model")
    model.__class__ = model_class
    return model


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attends from heads ``(batch, heads, n, d)`` to values ``(batch, n, heads, d)``; returns None for the weights."""
    fitted, name = getattr(module, CHILD, None), type(module).__name__
    if fitted is None:
        raise SbmtError("a fitted mask in every attention module", f"{name} without one", "call sbmt.sparsify first")
    if others.get("output_attentions", getattr(getattr(module, "config", None), "output_attentions", False)):
        do = 'omit it, or get the weights of full attention after model.set_attn_implementation("eager")'
        raise SbmtError("output_attentions=False, because no attention weights are computed", True, do)
    causal = getattr(fitted, "causal", False)
    if others.pop("is_causal", None) not in (None, causal):
        is_it = "causal" if causal else "not causal"
        raise SbmtError(f"is_causal must match the mask of {name}, which is {is_it}: omit is_causal")
    if changes := [name for name, x in others.items() if x is not None and x is not False and name not in HARMLESS]:
        do = "do not convert this model, since sampled masks support no other scores"
        raise SbmtError("attention scores from queries and keys alone", f"{changes[0]} from {name}", do)
    if attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.dtype != torch.bool):
        expected = "an attention mask (batch, n) that marks padding"
        raise SbmtError(expected, describe(attention_mask), "do not pass a mask of query-key pairs")
    query_mask = None if attention_mask is None else attention_mask[:, -query.shape[2] :]  # a cache adds keys
    if scaling is not None:
        query = query * (scaling * query.shape[-1] ** 0.5)
    if (n_shared := query.shape[1] // key.shape[1]) > 1:  # queries that share a key
        key, value = key.repeat_interleave(n_shared, 1), value.repeat_interleave(n_shared, 1)
    fitted.dropout = dropout
    output = fitted(query, key, value, query_mask=query_mask, key_mask=attention_mask)
    return output.values.transpose(1, 2).contiguous(), None


def real_tokens(
    *_: Any, q_length: int, kv_length: int, mask_function: Any, attention_mask: Tensor | None = None, **named: Any
) -> Tensor | None:
    """Returns the mask of real tokens, bool ``(batch, n_keys)``, or None; raises SbmtError for other kinds of mask."""
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    q_offset, settings = named.get("q_offset", 0), getattr(named.get("config"), "sbmt", None) or {}
    causal = settings.get("causal", False)
    if mask_function is not (causal_mask_function if causal else bidirectional_mask_function):
        wanted = "a causal mask" if causal else "a padding mask"
        raise SbmtError(f"the model must request {wanted}, got a different kind, which sampled masks do not support")
    if (causal and not isinstance(q_offset, int)) or kv_length != q_length + q_offset * causal:
        raise SbmtError("the cache must contain only the tokens so far: do not use a static cache")
    return None if attention_mask is None else attention_mask.bool()


def _number(module: nn.Module, *names: str) -> int:
    for name in names:
        for owner in (module, getattr(module, "config", None)):
            if isinstance(number := getattr(owner, name, None), int):
                return number
    raise SbmtError(f"attention with {' or '.join(names)}", type(module).__name__, "report this as a bug")
