"""Checks of what is computed: which keys, queries and heads enter an output, and with what weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.testing import gradients, invariances, outputs
from sbmt.testing.randomness import has_dropout
from sbmt.testing.subject import SEEDS, STANDARD_ERRORS, NotApplicableError, Subject, Tokens, is_close, is_random

LONG = 40  # tokens, unless the module says that it takes fewer
N_SEEDS = 16
ENOUGH_ROWS = 128  # of weights, each over two keys or more
LEAST_LAW = 0.63  # Algorithm 1 draws an edge with probability 1 − e^(−p) ≥ .632 p


def check_heads(subject: Subject) -> None:
    """A head reads nothing of the other heads, unless an attribute ``shared_graph`` says that they share a mask."""
    if subject.n_heads == 1:
        raise NotApplicableError("it has one head")
    if getattr(subject.module, "shared_graph", False):
        raise NotApplicableError("its heads share a graph")
    tokens, other = subject.padded_tokens(), subject.tokens().changed(lambda t: t.flip(0) + 1)
    query, key, value = (torch.cat([a[:, :1], b[:, 1:]], 1) for a, b in zip(tokens[:3], other[:3], strict=True))
    changed = Tokens(query, key, value, tokens.mask)

    def first_head(tokens: Tokens) -> Callable[[int], Tensor]:
        return lambda seed: subject.attend(tokens, seed).values[:, 0].detach().double()

    subject.compare(first_head(tokens), first_head(changed), "a head that reads itself alone", "sum over no heads")


def check_two_masks(subject: Subject) -> None:
    """``query_mask`` says which queries are padding, ``key_mask`` which keys are, and neither stands for the other."""
    tokens = subject.tokens(2)
    is_query = torch.ones(2, subject.n_tokens, dtype=torch.bool, device=subject.device)
    is_key = is_query.clone()
    is_query[:, 0], is_key[:, -1] = False, False
    tokens = tokens._replace(mask=is_query, key_mask=is_key)
    out = _attend_or_skip(subject, tokens, "another mask for the keys than for the queries")
    if not bool((out.values[:, :, 0] == 0).all()):
        raise SbmtError("zeros where query_mask is False", "other numbers", "do not take key_mask for query_mask")
    noise = subject.tokens(2).changed(lambda t: t.flip(0) * invariances.HUGE)
    hidden = tokens._replace(
        query=torch.where(is_query[:, None, :, None], tokens.query, noise.query),
        key=torch.where(is_key[:, None, :, None], tokens.key, noise.key),
        value=torch.where(is_key[:, None, :, None], tokens.value, noise.value),
    )
    subject.compare(
        lambda seed: invariances.flat(subject.attend(tokens, seed)),
        lambda seed: invariances.flat(subject.attend(hidden, seed)),
        "the same output whatever stands at queries and keys that their own masks hide",
        "do not take query_mask for key_mask",
    )
    _check_every_key_is_read(subject, tokens, is_key, "whose token is no query")


def check_more_keys(subject: Subject) -> None:
    """Where queries and keys differ in number, every key is read, unless the attention refuses such inputs."""
    few, many = subject.tokens(2, 2), subject.tokens(2)
    tokens = Tokens(few.query, many.key, many.value)
    _attend_or_skip(subject, tokens, "more keys than queries")
    is_key = torch.ones(2, subject.n_tokens, dtype=torch.bool, device=subject.device)
    _check_every_key_is_read(subject, tokens, is_key, "beyond the number of queries")


def _attend_or_skip(subject: Subject, tokens: Tokens, what: str) -> Any:
    try:
        return subject.attend(tokens, return_edges=True)
    except SbmtError as error:
        raise NotApplicableError(f"it refuses {what}") from error


def _check_every_key_is_read(subject: Subject, tokens: Tokens, is_key: Tensor, which: str) -> None:
    """Raises SbmtError where the values of some real keys are never read while those of others always are."""
    read, n_seeds = torch.zeros_like(is_key, dtype=torch.long), N_SEEDS if subject.is_random else 1
    for seed in range(n_seeds):
        value = tokens.value.clone().requires_grad_()
        values = subject.attend(tokens._replace(value=value), seed).values
        gradient = torch.autograd.grad(values.square().sum(), value)[0] if values.requires_grad else value * 0
        read += (gradient != 0).any(-1).any(1)
    for counts, is_real in zip(read, is_key, strict=True):  # tokens of one example have the same chances
        if counts[is_real].max() == n_seeds and counts[is_real].min() == 0:
            raise SbmtError(f"every real key to be read, also one {which}", "keys that never are", "attend to all keys")


def check_weights(subject: Subject) -> None:
    """Along its edges an attention takes the softmax of q·k/√d.

    The weights are measured by giving every key in turn a value of its own. If they are a softmax of other scores than
    q·k/√d, of k·q or at another scale, the check fails; if they are no such softmax, as in linear attention, it is
    skipped, since the kit cannot know what they should be.
    """
    ours: list[Tensor] = []
    plain: list[Tensor] = []
    swapped: list[Tensor] = []
    for seed in range(N_SEEDS if subject.is_random else 2):
        tokens = subject.tokens(1)
        out = subject.attend(tokens, seed, return_edges=True)
        edges = out.edges.to_dense()
        weights = _weights(subject, tokens, seed)
        if not is_close(weights @ tokens.value, out.values, 1e-3):
            raise NotApplicableError("its weights depend on the values")
        scores = tokens.query @ tokens.key.mT / subject.d_head**0.5
        is_row = edges.sum(-1) > 1  # a single key has weight 1 whatever its score
        for kept, scored in ((plain, scores), (swapped, scores.mT)):
            kept.append(scored.masked_fill(~edges, -torch.inf)[is_row])
        ours.append(weights[is_row])
        if sum(map(len, ours)) >= ENOUGH_ROWS:
            break
    measured, expected, turned = (torch.cat(x).double() for x in (ours, plain, swapped))
    if not len(measured):
        raise NotApplicableError("no query reads two keys")
    if is_close(measured, expected.softmax(-1), 1e-3):
        return
    for scores, product in ((expected, "q·k"), (turned, "k·q")):
        scale = _scale_of(measured, scores)
        if scale is not None:
            do = "divide the scores by √d_head, and let their rows be queries"
            raise SbmtError("the softmax of q·k/√d", f"that of {scale:.3g} {product}/√d", do)
    raise NotApplicableError("its weights are no softmax of products of queries and keys")


def _weights(subject: Subject, tokens: Tokens, seed: int) -> Tensor:
    """The weight of every key for every query, as many keys at a time as a value has entries."""
    weights = []
    for start in range(0, tokens.key.shape[2], subject.d_head):
        value = torch.zeros_like(tokens.value)
        for column, j in enumerate(range(start, min(start + subject.d_head, tokens.key.shape[2]))):
            value[:, :, j, column] = 1.0
        weights.append(subject.attend(tokens._replace(value=value), seed).values.detach())
    return torch.cat(weights, -1)[..., : tokens.key.shape[2]]


def _scale_of(weights: Tensor, scores: Tensor) -> float | None:
    """The factor c where the weights are the softmax of c times the scores, else None."""
    is_edge = scores.isfinite()
    if bool((weights <= 1e-30)[is_edge].any()):
        return None

    def centred(x: Tensor) -> Tensor:
        x = torch.where(is_edge, x, 0.0)
        return torch.where(is_edge, x - x.sum(-1, keepdim=True) / is_edge.sum(-1, keepdim=True), 0.0)

    logarithms, centred_scores = centred(weights.clamp(min=1e-30).log()), centred(scores)
    scale = float((logarithms * centred_scores).sum() / centred_scores.square().sum())
    return scale if is_close(weights, (scale * scores).masked_fill(~is_edge, -torch.inf).softmax(-1), 1e-3) else None


def check_expected_density(subject: Subject) -> None:
    """``expected_density`` is what the density is on average; the same, where nothing is drawn.

    Algorithm 1 merges repeated edges, which leaves down to .632 of the expected ones; so a value that is too large by
    less than that is not found. Edges of a window count in the density alone, so with one the check is skipped.
    """
    tokens = subject.padded_tokens()
    if getattr(subject.module, "window", None) is not None:
        raise NotApplicableError("edges of its window are certain, and not expected from probabilities")
    draws = [subject.attend(tokens, seed) for seed in range(subject.n_draws if subject.is_random else 1)]
    density = torch.stack([out.density.detach().double() for out in draws])
    expected = torch.stack([out.expected_density.detach().double() for out in draws]).mean(0)
    n_pairs = tokens.is_real.sum(1).square()[:, None]
    rare = torch.minimum(expected, 1 - expected)  # so rare that it may never have happened: e⁻¹⁴ is below 1e-6
    mean, least, allowed = density.mean(0), expected, 1e-5 + rare * (rare * n_pairs < 14 / SEEDS)
    if subject.is_random:
        variance = torch.maximum(density.var(0), expected * (1 - expected) / n_pairs)  # few draws may all be alike
        least, allowed = LEAST_LAW * expected, allowed + STANDARD_ERRORS * (variance / len(draws)).sqrt()
    if not bool(((mean <= expected + allowed) & (mean >= least - allowed)).all()):
        got = f"a mean density of {mean.flatten().tolist()} for {expected.flatten().tolist()}"
        raise SbmtError("expected_density as the mean density", got, "average the edge probabilities of real pairs")


def check_training(subject: Subject) -> None:
    """In training mode padding stays unread too, and gradients reach what was attended."""
    training = replace(subject, module=subject.copy().train())
    training = replace(training, is_random=is_random(training))
    checks = [invariances.check_padding_is_unread, invariances.check_padded_queries, check_heads]
    if not has_dropout(subject.module):  # which hides edges
        checks += [gradients.check_gradient_flow, outputs.check_edges]
    _check_again("in training mode", training, checks)


def check_long(subject: Subject) -> None:
    """What holds of a few tokens holds of many."""
    longest = getattr(subject.module, "n_positions", None)
    n_tokens = min(LONG, longest) if isinstance(longest, int) else LONG
    if n_tokens <= subject.n_tokens:
        raise NotApplicableError(f"it takes at most {n_tokens} tokens")
    long = replace(subject, n_tokens=n_tokens)
    long = replace(long, is_random=is_random(long))  # few tokens may meet for certain where many do not
    checks = [
        outputs.check_shapes,
        invariances.check_padding_is_unread,
        invariances.check_permutation,
        gradients.check_gradient_flow,
        check_weights,
        _check_all_keys_are_read,
    ]
    _check_again(f"with {n_tokens} tokens", long, checks)


def _check_all_keys_are_read(subject: Subject) -> None:
    tokens = subject.padded_tokens()
    _check_every_key_is_read(subject, tokens, tokens.is_real, "far from the first")


def _check_again(where: str, subject: Subject, checks: Sequence[Callable[[Subject], None]]) -> None:
    for check in checks:
        try:
            check(subject)
        except NotApplicableError:
            continue
        except SbmtError as error:
            expected, got, do = error.args
            raise SbmtError(f"{expected} {where}", got, do) from error
