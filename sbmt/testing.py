"""Checks of what holds of every attention behind the library's interface, for ours and for anybody's."""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError

LONG = 40  # tokens of the longest input, unless the module says that it takes fewer
STANDARD_ERRORS = 6.0  # between two means: some 2e-9 a number, far above what all numbers together could reach


class Tokens(NamedTuple):
    """What an attention is given; in masks, True is a real token."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Tensor
    key_mask: Tensor

    def leaves(self) -> "Tokens":
        """The same, with gradients."""
        return Tokens._make([*(x.clone().requires_grad_() for x in self[:3]), *self[3:]])


@dataclass(frozen=True, eq=False)
class Subject:
    """An attention under test, and what the checks need to know of it."""

    module: nn.Module
    n_heads: int
    d_head: int
    is_position_free: bool
    n_tokens: int
    n_draws: int

    def tokens(self, *n_real: int, dtype: torch.dtype = torch.float32) -> Tokens:
        """Examples in which so many tokens are real, normally distributed and the same at every call."""
        where = next((tensor.device for tensor in self.module.state_dict().values()), torch.device("cpu"))
        shape = (3, len(n_real), self.n_heads, self.n_tokens, self.d_head)
        tensors = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(where, dtype)
        mask = torch.arange(self.n_tokens, device=where) < torch.tensor(n_real, device=where)[:, None]
        return Tokens._make([*tensors, mask, mask])

    def padded(self, dtype: torch.dtype = torch.float32) -> Tokens:
        """Three examples: without padding, with two padded tokens, and with a single real token."""
        return self.tokens(self.n_tokens, self.n_tokens - 2, 1, dtype=dtype)

    def attend(self, tokens: Tokens, seed: int | None = 0, *, return_edges: bool = False) -> Any:
        """The module's output for a generator that starts from ``seed``, or without a generator."""
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        masks = {"query_mask": tokens.query_mask, "key_mask": tokens.key_mask}
        return self.module(*tokens[:3], **masks, generator=generator, return_edges=return_edges)

    def modes(self) -> "list[Subject]":
        """Copies in eval mode and in training mode."""
        return [replace(self, module=copy.deepcopy(self.module).train(mode)) for mode in (False, True)]

    def accepted(self, *inputs: Tokens) -> list[Tokens]:
        """Those of the inputs that it does not refuse."""
        found = []
        for tokens in inputs:
            with suppress(SbmtError):
                self.attend(tokens)
                found.append(tokens)
        return found

    def is_random(self) -> bool:
        """Whether the seed changes what it returns."""
        first, *others = (self.attend(self.padded(), seed).values for seed in range(8))
        return not all(_is_close(first, other, 1e-6) for other in others)

    def compare(self, expected: str, do: str, one: tuple[Tokens, Any], other: tuple[Tokens, Any]) -> None:
        """Expects two outputs to be the same, as read: for one seed, or else in their means over many seeds."""

        def draw(of: tuple[Tokens, Any], seed: int) -> Tensor:
            return of[1](self.attend(of[0], seed)).detach().double()

        first, second = draw(one, 0), draw(other, 0)
        if not (first.shape == second.shape and _is_close(first, second)):
            seeds = range(1, 1 + self.n_draws)
            draws = torch.stack([torch.stack([draw(one, -seed), draw(other, seed)]) for seed in seeds])
            (first, second), spread = draws.mean(0), draws.var(0).sum(0)
            allowed = STANDARD_ERRORS * (spread / self.n_draws).sqrt() + 1e-4 * (1 + first.abs())
            off = (first - second).abs()
            got = f"means over {self.n_draws} draws with a difference of {float(off.max()):.3g}"
            _expect((off <= allowed).all(), expected, got, do)


def _expect(holds: Any, expected: str, got: object, do: str) -> None:
    if not bool(holds):
        raise SbmtError(expected, got, do)


def _is_close(one: Tensor, other: Tensor, tol: float = 1e-4) -> bool:
    return bool(torch.allclose(one, other, rtol=tol, atol=tol))


def _numbers(out: Any, example: slice = slice(None), n: int | None = None) -> Tensor:
    """Values and densities in a row, of some examples and the first n queries."""
    return torch.cat([x[example].flatten() for x in (out.values[:, :, :n], out.density, out.expected_density)])


def check_outputs(subject: Subject) -> None:
    """Outputs have the shape, type and device that follow from the queries."""
    for dtype in (torch.float32, torch.float64):
        typed = replace(subject, module=copy.deepcopy(subject.module).to(dtype))
        query, *_ = tokens = typed.padded(dtype)
        out = typed.attend(tokens)
        _expect(out.values.dtype == dtype, f"values of type {dtype}", out.values.dtype, "convert them back")
        for name, n_axes in {"values": 4, "density": 2, "expected_density": 2}.items():
            given = getattr(out, name)
            got, wanted = (tuple(given.shape), given.device), (tuple(query.shape[:n_axes]), query.device)
            _expect(got == wanted, f"{name} of shape and device {wanted}", got, "follow the query")


def check_density(subject: Subject) -> None:
    """The density is the share of real pairs that are edges, 0 where there is no pair."""
    tokens = subject.tokens(subject.n_tokens, subject.n_tokens - 2, 0)
    n_pairs = tokens.key_mask.sum(1).square().clamp(min=1)[:, None]
    for seed in range(8):
        out = subject.attend(tokens, seed, return_edges=True)
        counted = out.edges.to_dense().sum((2, 3)).double() / n_pairs
        got, do = f"{out.density.tolist()} for {counted.tolist()}", "leave padding out, and take 0/0 as 0"
        _expect(_is_close(out.density.double(), counted, 1e-5), "density as the share of real pairs", got, do)
        is_share = (out.expected_density >= 0) & (out.expected_density <= 1)
        _expect(is_share.all(), "expected_density in [0, 1]", out.expected_density.tolist(), "divide by real pairs")


def check_edges(subject: Subject) -> None:
    """Edges come where they are asked for, join real tokens, and are all that a query reads."""
    tokens = subject.padded()
    out = subject.attend(tokens, return_edges=True)
    is_asked = out.edges is not None and subject.attend(tokens).edges is None
    _expect(is_asked, "edges with return_edges=True alone", "none, or unasked", "list all real pairs if all are read")
    dense = out.edges.to_dense()
    is_pair = tokens.query_mask[:, None, :, None] & tokens.key_mask[:, None, None, :]
    _expect(not (dense & ~is_pair).any(), "edges between real tokens", "an edge at padding", "mask the pairs first")
    for j in range(subject.n_tokens):
        value = tokens.value.clone()
        value[:, :, j] += 10.0
        changed, others = subject.attend(tokens._replace(value=value)).values, ~dense[..., j]
        got = f"one that reads key {j} without"
        _expect(_is_close(changed[others], out.values[others]), "queries that read along edges", got, "list every edge")


def check_padding(subject: Subject) -> None:
    """What padded tokens hold changes nothing, in training too, and padded queries give zeros."""
    n = subject.n_tokens
    is_query, is_key = (torch.arange(n, device=subject.padded().query.device).expand(3, n) != i for i in (0, n - 1))
    apart = subject.padded()._replace(query_mask=is_query, key_mask=is_key)
    for tokens in subject.accepted(subject.padded(), apart):
        masks = (tokens.query_mask, tokens.key_mask, tokens.key_mask)
        hidden = (torch.where(m[:, None, :, None], x, 1e4 * x.flip(0)) for m, x in zip(masks, tokens[:3], strict=True))
        other = Tokens._make([*hidden, *tokens[3:]])
        for mode in subject.modes():
            at_padding = mode.attend(tokens).values.transpose(1, 2)[~tokens.query_mask]
            _expect((at_padding == 0).all(), "zeros at padded queries", "other numbers", "zero them by query_mask")
            do = "mask keys by key_mask before the softmax, and whatever else sums over tokens"
            mode.compare("the same output whatever padded tokens hold", do, (tokens, _numbers), (other, _numbers))


def check_permutation(subject: Subject) -> None:
    """Tokens in another order give the same values in that order, unless their places count."""
    if not subject.is_position_free:
        return
    tokens = subject.padded()
    order = torch.randperm(subject.n_tokens, generator=torch.Generator().manual_seed(2)).to(tokens.query.device)
    shuffled = Tokens(*(x[:, :, order] for x in tokens[:3]), *(mask[:, order] for mask in tokens[3:]))
    expected, do = "the same values in another order", "pass is_position_free=False if positions count"
    subject.compare(expected, do, (shuffled, lambda out: out.values), (tokens, lambda out: out.values[:, :, order]))


def check_company(subject: Subject) -> None:
    """An example gives alone and without its padding what it gives padded, between two others."""
    n, tokens = subject.n_tokens - 2, subject.padded()
    alone = Tokens(*(x[1:2, :, :n] for x in tokens[:3]), *(mask[1:2, :n] for mask in tokens[3:]))
    do = "count real tokens only, and let no sum, mean or maximum run over the batch"
    among = tokens, lambda out: _numbers(out, slice(1, 2), n)
    subject.compare("a padded example of a batch as alone", do, (alone, _numbers), among)


def check_heads(subject: Subject) -> None:
    """A head reads nothing of the other heads, in training too."""
    tokens = subject.padded()
    other = Tokens._make([*(torch.cat([x[:, :1], x[:, 1:].flip(0) + 1], 1) for x in tokens[:3]), *tokens[3:]])
    for mode in subject.modes():
        of_first = [(x, lambda out: out.values[:, 0]) for x in (tokens, other)]
        mode.compare("a head that reads itself alone", "sum over no heads", *of_first)


def check_keys(subject: Subject) -> None:
    """Every key is read: among many, where there are more keys than queries, and where its own token is no query."""
    longest = getattr(subject.module, "n_positions", None) or LONG
    many = replace(subject, n_tokens=min(LONG, longest)).padded()
    few = many._replace(query=many.query[:, :, :2], query_mask=many.query_mask[:, :2])
    for tokens in subject.accepted(many, few):
        n_read = torch.zeros_like(tokens.key_mask, dtype=torch.long)
        for seed in range(16):
            leaves = tokens.leaves()
            loss = subject.attend(leaves, seed).values.square().sum()
            [gradient] = torch.autograd.grad(loss, leaves.value) if loss.requires_grad else [leaves.value * 0]
            n_read += (gradient != 0).any(-1).any(1)
        for counts, is_real in zip(n_read, tokens.key_mask, strict=True):  # in an example all have the same chances
            is_read = counts[is_real].max() < 16 or counts[is_real].min() > 0
            _expect(is_read, "every real key to be read", "keys that never are", "attend to all keys")


def check_finite(subject: Subject) -> None:
    """Outputs and gradients are finite for empty rows, padding alone and single tokens, in training too."""
    n = subject.n_tokens
    single = replace(subject, n_tokens=1).tokens(1, 1)
    for tokens in (subject.tokens(n, n, n), subject.padded(), subject.tokens(n, 0, 0), subject.tokens(0, 0), single):
        what = f"for {tokens.key_mask.sum(1).tolist()} real of {tokens.key_mask.shape[1]} tokens"
        for mode in subject.modes():
            leaves = tokens.leaves()
            for seed in range(8):
                out = mode.attend(leaves, seed, return_edges=True)
                _expect(_numbers(out).isfinite().all(), f"finite outputs {what}", "NaN", "let empty rows give zeros")
                loss = (out.values * leaves.value.detach().flip(2)).sum() + _numbers(out).sum()
                if loss.requires_grad:
                    loss.backward()
            for x in (*leaves[:3], *mode.module.parameters()):
                do = "replace what is masked before it is divided or exponentiated, not after"
                _expect(x.grad is None or x.grad.isfinite().all(), f"finite gradients {what}", "NaN or infinity", do)


def check_gradients(subject: Subject) -> None:
    """Gradients reach what is attended, and are those of finite differences: to values alone where masks are drawn."""
    leaves = subject.padded().leaves()
    out = subject.attend(leaves, return_edges=True)
    (out.values * leaves.query.detach().flip(2)).sum().backward() if out.values.requires_grad else None
    query, key, value = (torch.zeros_like(x) if x.grad is None else x.grad for x in leaves[:3])
    is_attended = out.edges.to_dense()  # batch heads queries keys
    reaches = (value[is_attended.any(2)] != 0).any(-1).all()
    _expect(reaches, "a gradient to the value of every attended key", "zero or none", "do not detach the values")
    chosen = (is_attended.sum(-1) <= 1).all() or (query != 0).any() or (key != 0).any()  # a single key has weight 1
    _expect(chosen, "a gradient to queries or keys", "zero or none", "do not detach the scores")
    few = replace(subject, module=copy.deepcopy(subject.module).double(), n_tokens=min(4, subject.n_tokens))
    tokens = few.tokens(few.n_tokens - 1, dtype=torch.float64)
    inputs = (*tokens[:2], tokens.value.requires_grad_()) if subject.is_random() else tokens.leaves()[:3]
    try:
        torch.autograd.gradcheck(lambda *x: few.attend(Tokens._make([*x, *tokens[3:]]), 7).values, inputs)
    except (RuntimeError, ValueError) as error:
        raise SbmtError("gradients as by finite differences", str(error), "check the backward pass") from error


def check_generator(subject: Subject) -> None:
    """The generator, or ``torch.manual_seed`` without one, governs all that is random, and nothing else does."""
    tokens, do = subject.padded(), "draw from the generator given, from torch's where none is, and keep no state"
    given, free = [], []
    for seed in (*range(8), 0):
        state = torch.manual_seed(seed).get_state()
        given.append(subject.attend(tokens, 3).values)
        _expect(torch.equal(state, torch.get_rng_state()), "the global generator untouched", "one that has moved", do)
        free.append(subject.attend(tokens, None).values)
    _expect(all(_is_close(given[0], x, 1e-5) for x in given), "the same values from the same seed", "others", do)
    _expect(_is_close(free[0], free[-1], 1e-5), "the same values after torch.manual_seed", "others", do)
    is_free = not all(_is_close(free[0], other, 1e-6) for other in free)
    _expect(is_free == subject.is_random(), "values as random with a generator as without", "a difference", do)


_CHECKS = [check_outputs, check_density, check_edges, check_padding, check_company, check_permutation, check_heads]
_CHECKS += [check_keys, check_finite, check_gradients, check_generator]
CHECKS: dict[str, Callable[[Subject], None]] = {check.__name__.removeprefix("check_"): check for check in _CHECKS}
"""Checks by name; each raises SbmtError if the attention does not do what the check's docstring says."""


def failed_checks(module: nn.Module, **settings: Any) -> dict[str, str]:
    """What is wrong with an attention, by the names of the checks that it fails; see :func:`check_attention`."""
    _expect(isinstance(module, nn.Module), "an attention as a torch.nn.Module", type(module).__name__, "wrap it in one")
    own: dict[str, Any] = {"n_heads": getattr(module, "n_heads", 2), "d_head": getattr(module, "d_head", 4)}
    is_free = not hasattr(module, "n_positions") and not getattr(module, "window", None)
    own |= {"n_tokens": 6, "n_draws": 128, "is_position_free": is_free} | settings
    is_enough = own["n_tokens"] >= 3 and own["n_draws"] >= 2
    _expect(is_enough, "n_tokens ≥ 3 and n_draws ≥ 2", settings, "two tokens of an example are padded")
    failed = {}
    for name, check in CHECKS.items():
        with torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(0)  # for dropouts of PyTorch's own
            try:
                check(Subject(copy.deepcopy(module).eval(), **own))
            except SbmtError as error:
                failed[name] = str(error)
            except Exception as error:  # a module under test may raise anything
                failed[name] = f"expected an output or SbmtError, got {type(error).__name__}: {error}"
    return failed


def check_attention(module: nn.Module, **settings: Any) -> list[str]:
    """Checks that an attention obeys the rules that all attentions of the library obey.

    The module is called as ``module(query, key, value, query_mask=…, key_mask=…, generator=…, return_edges=…)`` and
    returns what :class:`~sbmt.AttentionOutput` holds. Copies are checked, and the verdict is the same every time.

    Args:
        module: Any attention with that interface, ours or not.
        **settings: ``n_heads`` and ``d_head`` of the inputs, by default those of the module; ``n_tokens``, at least 3;
            ``is_position_free``, whether reordered tokens must give the same values in that order, by default unless
            the module has ``n_positions`` or a ``window``; ``n_draws``, calls per mean where outputs are random.

    Returns:
        The names of the checks, all of which it passed.

    Raises:
        SbmtError: If a check fails; it lists every check that did, with what was expected and what came.

    Example:
        >>> from sbmt import build_attention
        >>> len(check_attention(build_attention("full", d_head=4, n_heads=2)))
        11
    """
    failed = [f"\n- {name}: {message}" for name, message in failed_checks(module, **settings).items()]
    expected = f"{type(module).__name__} to pass {len(CHECKS)} checks"
    _expect(not failed, expected, f"{len(failed)} that failed", f"see each{''.join(failed)}")
    return list(CHECKS)
