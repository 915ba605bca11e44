"""Checks for attention layers with the library's interface, including your own."""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.attention.inputs import Heads
from sbmt.errors import SbmtError, check_sizes

STANDARD_ERRORS = 6.0  # allowed difference of two means, with one false alarm in 5e8 comparisons


Reading = tuple[Heads, Callable[[Any], Tensor]]  # the inputs of an attention layer, and a function of its output


@dataclass(frozen=True, eq=False)
class Subject:
    """An attention layer under test, with the sizes of its inputs."""

    module: nn.Module
    n_heads: int
    d_head: int
    n_tokens: int
    n_draws: int

    def tokens(self, *n_real: int, dtype: torch.dtype = torch.float32) -> Heads:
        """Returns normally distributed examples with the given numbers of real tokens, the same in every call."""
        where = next((tensor.device for tensor in self.module.state_dict().values()), torch.device("cpu"))
        shape = (3, len(n_real), self.n_heads, self.n_tokens, self.d_head)
        tensors = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(where, dtype)
        mask = torch.arange(self.n_tokens, device=where) < torch.tensor(n_real, device=where)[:, None]
        return Heads._make([*tensors, mask, mask])

    def padded(self, dtype: torch.dtype = torch.float32) -> Heads:
        """Returns three examples: one without padding, one with two padded tokens, and one with a single real token."""
        return self.tokens(self.n_tokens, self.n_tokens - 2, 1, dtype=dtype)

    def attend(self, tokens: Heads, seed: int | None = 0, *, return_edges: bool = False) -> Any:
        """Returns the module's output with a generator of the given seed, or with no generator if the seed is None."""
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return tokens.attend(self.module, generator=generator, return_edges=return_edges)

    def is_random(self) -> bool:
        """Returns whether the values depend on the seed."""
        first, *others = (self.attend(self.padded(), seed).values for seed in range(8))
        return not all(_is_close(first, other, 1e-6) for other in others)

    def expect_same(self, rule: str, first: Reading, second: Reading) -> None:
        """Raises SbmtError unless two readings agree for one seed, or in their means over many seeds."""

        def draw(reading: Reading, seed: int) -> Tensor:
            return reading[1](self.attend(reading[0], seed)).detach().double()

        if _is_close(draw(first, 0), draw(second, 0)):
            return
        seeds = range(1, 1 + self.n_draws)
        draws = torch.stack([torch.stack([draw(first, -seed), draw(second, seed)]) for seed in seeds])
        (one, other), spread = draws.mean(0), draws.var(0).sum(0)
        allowed = STANDARD_ERRORS * (spread / self.n_draws).sqrt() + 1e-4 * (1 + one.abs())
        off = (one - other).abs()
        _expect((off <= allowed).all(), f"{rule} (means over {self.n_draws} draws differ by {float(off.max()):.3g})")


def _expect(holds: Any, rule: str) -> None:
    if not bool(holds):
        raise SbmtError(rule)


def _leaves(tokens: Heads) -> Heads:
    return Heads._make([*(x.clone().requires_grad_() for x in tokens[:3]), *tokens[3:]])


def _is_close(one: Tensor, other: Tensor, tol: float = 1e-4) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=tol, atol=tol)


def _numbers(out: Any, example: slice = slice(None), n: int | None = None) -> Tensor:
    """Concatenates the values and densities of some examples, for the first n queries."""
    return torch.cat([x[example].flatten() for x in (out.values[:, :, :n], out.density, out.expected_density)])


def check_outputs(subject: Subject) -> None:
    """Checks that outputs have the right shapes and device, and that values have the dtype of the inputs."""
    for dtype in (torch.float32, torch.float64):
        subject.module.to(dtype)
        query, *_ = tokens = subject.padded(dtype)
        out = subject.attend(tokens)
        _expect(out.values.dtype == dtype, f"values must have the type of the inputs, {dtype}, got {out.values.dtype}")
        for name, n_axes in {"values": 4, "density": 2, "expected_density": 2}.items():
            found = getattr(out, name)
            got, wanted = (tuple(found.shape), found.device), (tuple(query.shape[:n_axes]), query.device)
            _expect(got == wanted, f"{name} must have shape and device {wanted}, got {got}")


def check_density(subject: Subject) -> None:
    """Checks that the density is the share of real pairs that are edges, or 0 without real pairs."""
    tokens = subject.tokens(subject.n_tokens, subject.n_tokens - 2, 0)
    n_pairs = tokens.key_mask.sum(1).square().clamp(min=1)[:, None]
    for seed in range(8):
        out = subject.attend(tokens, seed, return_edges=True)
        counted = out.edges.to_dense().sum((2, 3)).double() / n_pairs
        is_right = _is_close(out.density.double(), counted, 1e-5)
        rule = "density must be the share of real pairs that are edges, and 0 without real pairs"
        _expect(is_right, f"{rule}: expected {counted.tolist()}, got {out.density.tolist()}")
        is_share = (out.expected_density >= 0) & (out.expected_density <= 1)
        _expect(is_share.all(), f"expected_density must be in [0, 1], got {out.expected_density.tolist()}")


def check_edges(subject: Subject) -> None:
    """Checks that edges are returned on request, join real tokens, and include every key that a query attends to."""
    tokens = subject.padded()
    out = subject.attend(tokens, return_edges=True)
    is_asked = out.edges is not None and subject.attend(tokens).edges is None
    _expect(is_asked, "edges must be returned if and only if return_edges=True")
    dense = out.edges.to_dense()
    is_pair = tokens.query_mask[:, None, :, None] & tokens.key_mask[:, None, None, :]
    _expect(not (dense & ~is_pair).any(), "edges must join real tokens, but one touches padding")
    for j in range(subject.n_tokens):
        value = tokens.value.clone()
        value[:, :, j] += 10.0
        changed, others = subject.attend(tokens._replace(value=value)).values, ~dense[..., j]
        is_unread = _is_close(changed[others], out.values[others])
        _expect(is_unread, f"edges must lead to every key that a query reads, but a query reads key {j} without one")


def check_padding(subject: Subject) -> None:
    """Checks that the content of padded tokens has no effect, even in training, and that padded queries give zeros."""
    inputs = [subject.padded()]
    first, last = torch.zeros_like(inputs[0].query_mask), torch.zeros_like(inputs[0].key_mask)
    first[:, 0] = last[:, -1] = True
    with suppress(SbmtError):  # a layer may require that both masks are equal
        subject.attend(apart := inputs[0]._replace(query_mask=~first, key_mask=~last))
        inputs.append(apart)
    for tokens in inputs:
        masks = (tokens.query_mask, tokens.key_mask, tokens.key_mask)
        hidden = (torch.where(m[:, None, :, None], x, 1e4 * x.flip(0)) for m, x in zip(masks, tokens[:3], strict=True))
        other = Heads._make([*hidden, *tokens[3:]])
        for is_training in (False, True):
            subject.module.train(is_training)
            at_padding = subject.attend(tokens).values.transpose(1, 2)[~tokens.query_mask]
            _expect((at_padding == 0).all(), "values must be zero at padded queries: zero them with query_mask")
            rule = "the content of padded tokens must have no effect: mask them before the softmax and before any sum"
            subject.expect_same(rule, (tokens, _numbers), (other, _numbers))


def check_company(subject: Subject) -> None:
    """Checks that an example has the same output in a padded batch as alone without padding."""
    n, tokens = subject.n_tokens - 2, subject.padded()
    alone = Heads(*(x[1:2, :, :n] for x in tokens[:3]), *(mask[1:2, :n] for mask in tokens[3:]))
    rule = "an example must have equal outputs in a padded batch and alone: take no sum, mean or maximum over the batch"
    subject.expect_same(rule, (alone, _numbers), (tokens, lambda out: _numbers(out, slice(1, 2), n)))


def check_finite(subject: Subject) -> None:
    """Checks that outputs and gradients are finite, even in training, for empty rows, all padding and single tokens."""
    n = subject.n_tokens
    single = replace(subject, n_tokens=1).tokens(1, 1)
    for tokens in (subject.tokens(n, n, n), subject.padded(), subject.tokens(n, 0, 0), subject.tokens(0, 0), single):
        given, leaves = f"{tokens.key_mask.sum(1).tolist()} of {tokens.key_mask.shape[1]} tokens real", _leaves(tokens)
        for seed in range(16):
            subject.module.train(seed >= 8)
            out = subject.attend(leaves, seed, return_edges=True)
            _expect(_numbers(out).isfinite().all(), f"outputs must be finite with {given}: give zeros to empty rows")
            loss = (out.values * leaves.value.detach().flip(2)).sum() + _numbers(out).sum()
            if loss.requires_grad:
                loss.backward()
        for x in (*leaves[:3], *subject.module.parameters()):
            rule = f"gradients must be finite with {given}: mask before dividing or exponentiating, not after"
            _expect(x.grad is None or x.grad.isfinite().all(), rule)


def check_gradients(subject: Subject) -> None:
    """Checks that gradients reach the inputs and agree with finite differences (only for values if masks are drawn)."""
    leaves = _leaves(subject.padded())
    out = subject.attend(leaves, return_edges=True)
    if out.values.requires_grad:
        (out.values * leaves.query.detach().flip(2)).sum().backward()
    query, key, value = (torch.zeros_like(x) if x.grad is None else x.grad for x in leaves[:3])
    is_attended = out.edges.to_dense()  # batch heads queries keys
    reaches = (value[is_attended.any(2)] != 0).any(-1).all()
    _expect(reaches, "a gradient must reach the value of every attended key: do not detach the values")
    chosen = (is_attended.sum(-1) <= 1).all() or (query != 0).any() or (key != 0).any()  # a single key has weight 1
    _expect(chosen, "a gradient must reach queries or keys: do not detach the scores")
    is_random = subject.is_random()
    few = replace(subject, module=subject.module.double(), n_tokens=min(4, subject.n_tokens))
    tokens = few.tokens(few.n_tokens - 1, dtype=torch.float64)
    inputs = (*tokens[:2], tokens.value.requires_grad_()) if is_random else _leaves(tokens)[:3]
    try:
        torch.autograd.gradcheck(lambda *x: few.attend(Heads._make([*x, *tokens[3:]]), 7).values, inputs)
    except (RuntimeError, ValueError) as error:
        raise SbmtError(f"gradients must agree with finite differences: {error}") from error


def check_generator(subject: Subject) -> None:
    """Checks that all randomness comes from the generator, or from torch's own if none is passed."""
    tokens, given, free = subject.padded(), [], []
    for seed in (*range(8), 0):
        state = torch.manual_seed(seed).get_state()
        given.append(subject.attend(tokens, 3).values)
        is_untouched = torch.equal(state, torch.get_rng_state())
        _expect(is_untouched, "the state of torch's generator must not change: draw from the given generator")
        free.append(subject.attend(tokens, None).values)
    _expect(all(_is_close(given[0], x, 1e-5) for x in given), "the same seed must give the same output: keep no state")
    is_repeated = _is_close(free[0], free[-1], 1e-5)
    _expect(is_repeated, "torch.manual_seed must reproduce the values: without a generator, draw from torch's")
    is_free = not all(_is_close(free[0], other, 1e-6) for other in free)
    _expect(is_free == subject.is_random(), "values must be random both with and without a generator, or never")


_ALL = [check_outputs, check_density, check_edges, check_padding, check_company]
_ALL += [check_finite, check_gradients, check_generator]
CHECKS: dict[str, Callable[[Subject], None]] = {check.__name__.removeprefix("check_"): check for check in _ALL}
"""The checks by name; each raises SbmtError if it fails."""


def check_attention(
    module: nn.Module, *, n_heads: int | None = None, d_head: int | None = None, n_tokens: int = 6, n_draws: int = 128
) -> list[str]:
    """Checks that an attention layer follows the rules of the library's layers, and returns the names of the checks.

    The module is called as ``module(query, key, value, query_mask=…, key_mask=…, generator=…, return_edges=…)`` and
    returns the attributes of an :class:`~sbmt.AttentionOutput`. Checks run on copies, and the result is reproducible.

    Args:
        module: Any attention layer with this interface.
        n_heads: Number of heads of the inputs; None means the module's ``n_heads``.
        d_head: Width of each head; None means the module's ``d_head``.
        n_tokens: Length of the inputs, at least 3.
        n_draws: Number of calls over which random outputs are averaged, at least 2.

    Raises SbmtError if a check fails; the error lists all failed checks and says what is wrong.

    Example:
        >>> from sbmt import build_attention
        >>> len(check_attention(build_attention("full", d_head=4, n_heads=2)))
        8
    """
    _expect(isinstance(module, nn.Module), f"module must be a torch.nn.Module, got {type(module).__name__}")
    heads = getattr(module, "n_heads", 2) if n_heads is None else n_heads
    width = getattr(module, "d_head", 4) if d_head is None else d_head
    check_sizes(n_heads=heads, d_head=width)
    sizes = f"n_tokens must be at least 3 (two tokens are padded) and n_draws at least 2, got {n_tokens} and {n_draws}"
    _expect(n_tokens >= 3 and n_draws >= 2, sizes)
    failed = []
    for name, check in CHECKS.items():
        with torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(0)  # for PyTorch's dropout
            try:
                check(Subject(copy.deepcopy(module).eval(), heads, width, n_tokens, n_draws))
            except SbmtError as error:
                failed.append(f"{name}: {error}")
            except Exception as error:  # a module under test may raise anything
                failed.append(f"{name}: the layer must not raise an error, got {type(error).__name__}: {error}")
    _expect(not failed, f"{type(module).__name__} fails {len(failed)} of {len(CHECKS)} checks; {'; '.join(failed)}")
    return list(CHECKS)
