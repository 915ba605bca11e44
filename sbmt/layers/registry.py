"""Attentions by name."""

from typing import Any

from torch import nn

from sbmt.baselines.full import FullAttention
from sbmt.baselines.linear import LinearAttention
from sbmt.baselines.linformer import LinformerAttention
from sbmt.baselines.nystromformer import NystromAttention
from sbmt.baselines.performer import PerformerAttention
from sbmt.baselines.random_mask import RandomMaskAttention
from sbmt.baselines.reformer import ReformerAttention
from sbmt.errors import SbmtError, choose
from sbmt.layers.sbm import SBMAttention
from sbmt.layers.sbm_static import StaticSBMAttention
from sbmt.registration import add_to

ATTENTIONS: dict[str, type[nn.Module]] = {
    "sbm": SBMAttention,
    "sbm_static": StaticSBMAttention,
    "full": FullAttention,
    "linear": LinearAttention,
    "linformer": LinformerAttention,
    "reformer": ReformerAttention,
    "performer": PerformerAttention,
    "nystromformer": NystromAttention,
    "random_mask": RandomMaskAttention,
}
RESERVED = frozenset(ATTENTIONS)

PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {"sampler": "exact", "gate_rule": "score", "exploration": 0.01, "self_loops": True},
    "faithful": {"sampler": "fastrg", "gate_rule": "score", "exploration": 0.01, "self_loops": False},
}
"""Settings of ``"sbm"``. ``recommended``: an exact law, and self-loops, without which some seeds lose their mask in
training; they need as many keys as queries. ``faithful``: the paper to the letter, Algorithm 1 included."""


def register_attention(name: str, attention: type[nn.Module]) -> None:
    """Gives an attention of yours a name, for :func:`build_attention`, the models and the trainer.

    Its constructor takes ``d_head``, ``n_heads`` and ``dropout`` by name, and whatever it needs besides. Its modules
    are called as those of the library; :func:`sbmt.testing.check_attention` says whether they keep its rules.

    Args:
        name: Letters, digits and underscores, none of the library's own names. One of yours may be given anew.
        attention: The class.

    Raises:
        SbmtError: If the name is taken or no name, or the class is no ``torch.nn.Module``.

    Example:
        >>> register_attention("sbm", SBMAttention)
        Traceback (most recent call last):
        ...
        sbmt.errors.SbmtError: expected a name that the library does not use for an attention, got 'sbm': take another
    """
    if not isinstance(attention, type) or not issubclass(attention, nn.Module):
        got = attention.__name__ if isinstance(attention, type) else f"a {type(attention).__name__}"
        raise SbmtError("an attention as a subclass of torch.nn.Module", got, "pass the class, not an instance")
    add_to(ATTENTIONS, "attention", name, attention, RESERVED)


def build_attention(name: str, *, preset: str | None = None, **arguments: Any) -> nn.Module:
    """Builds an attention by its name.

    All share one interface: ``(query, key, value, *, query_mask, key_mask, generator, return_edges)`` returns an
    :class:`~sbmt.types.AttentionOutput`.

    Args:
        name: ``"sbm"``, ``"sbm_static"``, ``"full"``, ``"linear"``, ``"linformer"``, ``"reformer"``, ``"performer"``,
            ``"nystromformer"``, ``"random_mask"``, or one that :func:`register_attention` was given.
        preset: For ``"sbm"``: ``"recommended"`` or ``"faithful"``; arguments override its settings.
        **arguments: What the class takes; all take ``d_head`` and ``n_heads``.

    Raises:
        SbmtError: If the name, the preset or an argument is unknown, or an argument is missing.

    Example:
        >>> build_attention("full", d_head=8, n_heads=2)
        FullAttention(d_head=8, n_heads=2, dropout=0.0)
    """
    attention = choose("attention", name, ATTENTIONS)
    if preset is not None:
        if name != "sbm":
            raise SbmtError("a preset with attention 'sbm' only", f"{preset!r} with {name!r}", "leave it out")
        arguments = choose("preset", preset, PRESETS) | arguments
    try:
        return attention(**arguments)
    except TypeError as error:
        got = str(error).removeprefix("got ")
        raise SbmtError(f"arguments that {attention.__name__} takes", got, "see its documentation") from error
