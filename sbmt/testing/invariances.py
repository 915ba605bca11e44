"""Checks of two calls whose outputs must agree: other padding, other order, other company."""

from typing import Any

import torch
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.testing.subject import NotApplicableError, Subject, Tokens

HUGE = 1e4


def flat(out: Any, example: int | None = None, n: int | None = None) -> Tensor:
    """Values and densities as one row of numbers, of one example and its first ``n`` queries or of all."""
    parts = [out.values[:, :, :n], out.density, out.expected_density]
    chosen = slice(None) if example is None else slice(example, example + 1)
    return torch.cat([part[chosen].detach().double().flatten() for part in parts])


def _with_edges(out: Any, order: Tensor | None = None) -> Tensor:
    """Values, edges and densities as one row of numbers, the tokens taken in an order."""
    parts = [out.values] if out.edges is None else [out.values, out.edges.to_dense()]
    if order is not None:
        parts = [part[:, :, order] for part in parts]
        parts[1:] = [part[..., order] for part in parts[1:]]
    return torch.cat([part.detach().double().flatten() for part in (*parts, out.density, out.expected_density)])


def check_padding_is_unread(subject: Subject) -> None:
    """What stands at padded tokens changes nothing."""
    tokens = subject.padded_tokens()
    is_padding = ~tokens.is_real[:, None, :, None]
    noise = subject.tokens().changed(lambda t: t.flip(0) * HUGE)
    query, key, value = (torch.where(is_padding, b, a) for a, b in zip(tokens[:3], noise[:3], strict=True))
    other = Tokens(query, key, value, tokens.mask)
    subject.compare(
        lambda seed: flat(subject.attend(tokens, seed)),
        lambda seed: flat(subject.attend(other, seed)),
        "the same output whatever stands at padded tokens",
        "mask keys before the softmax, and whatever else sums over tokens",
    )


def check_padding_is_absence(subject: Subject) -> None:
    """A padded example gives what it gives without its padding."""
    n = subject.n_tokens - 2
    among = subject.padded_tokens().changed(lambda t: t[1:2])
    query, key, value = (t[:, :, :n] for t in among[:3])
    alone = Tokens(query, key, value)
    subject.compare(
        lambda seed: flat(subject.attend(alone, seed)),
        lambda seed: flat(subject.attend(among, seed), n=n),
        "the output of a padded example as without its padding",
        "count real tokens and real pairs only",
    )


def check_padded_queries(subject: Subject) -> None:
    """Padded queries give zeros."""
    tokens = subject.padded_tokens()
    at_padding = subject.attend(tokens).values.transpose(1, 2)[~tokens.is_real]
    if not bool((at_padding == 0).all()):
        got = f"numbers up to {float(at_padding.abs().max()):.3g}"
        raise SbmtError("zeros at padded queries", got, "zero the values where query_mask is False")


def check_permutation(subject: Subject) -> None:
    """Tokens in another order give the same values in that order."""
    if not subject.is_position_free:
        raise NotApplicableError("the order of the tokens means something to this attention")
    tokens = subject.padded_tokens()
    order = torch.randperm(subject.n_tokens, generator=torch.Generator().manual_seed(2)).to(subject.device)
    query, key, value = (t[:, :, order] for t in tokens[:3])
    shuffled, back = Tokens(query, key, value, tokens.is_real[:, order]), order.argsort()
    subject.compare(
        lambda seed: _with_edges(subject.attend(tokens, seed, return_edges=True)),
        lambda seed: _with_edges(subject.attend(shuffled, seed, return_edges=True), back),
        "the same values and edges for the same tokens in another order",
        "pass is_position_free=False if positions are meant to count",
    )


def check_batch(subject: Subject) -> None:
    """An example gives alone what it gives between two others."""
    tokens = subject.padded_tokens()
    alone = tokens.changed(lambda t: t[1:2])
    subject.compare(
        lambda seed: flat(subject.attend(alone, seed)),
        lambda seed: flat(subject.attend(tokens, seed), example=1),
        "an example of a batch as alone",
        "let no sum, mean or maximum run over the batch",
    )
