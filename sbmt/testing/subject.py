"""The attention under test: its sizes, inputs for it, and when two of its outputs count as the same."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError

HEADS = (2, 1, *range(3, 17))
WIDTHS = (4, 1, 2, 3, *range(5, 33), 48, 64, 80, 96, 128)
SEEDS = 8  # that are tried to find out whether an attention is random
STANDARD_ERRORS = 6.0  # between two means: some 2e-9 a number, far above what all numbers together could reach


class NotApplicableError(Exception):
    """A check has nothing to say about this module; the message says why."""


class Tokens(NamedTuple):
    """What an attention is given. Masks: True = real token, None = all real; keys may have one of their own."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    key_mask: Tensor | None = None

    @property
    def is_real(self) -> Tensor:
        """The mask, written out where all are real."""
        batch, _, n, _ = self.query.shape
        return self.mask if self.mask is not None else torch.ones(batch, n, dtype=torch.bool, device=self.query.device)

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        """The same change to every tensor."""
        masks = (None if mask is None else change(mask) for mask in (self.mask, self.key_mask))
        return Tokens(change(self.query), change(self.key), change(self.value), *masks)


@dataclass(frozen=True, eq=False)
class Subject:
    """An attention in eval mode, together with what the checks need to know of it.

    Attributes:
        module: A copy of the attention.
        n_heads: Heads of the inputs.
        d_head: Width of queries, keys and values.
        n_tokens: Longest sequence of the inputs, at least 3.
        is_position_free: Whether the order of the tokens means nothing to it.
        n_draws: Calls per mean where random outputs are compared.
        is_random: Whether the seed changes what it returns.
    """

    module: nn.Module
    n_heads: int
    d_head: int
    n_tokens: int
    is_position_free: bool
    n_draws: int
    is_random: bool = False

    @property
    def device(self) -> torch.device:
        """Where the module's numbers are; the CPU if it has none."""
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            return tensor.device
        return torch.device("cpu")

    def copy(self) -> nn.Module:
        """Another copy of the module, for a check that changes it."""
        return copy.deepcopy(self.module)

    def tokens(self, batch: int = 3, n: int | None = None, *, dtype: torch.dtype = torch.float32) -> Tokens:
        """Normally distributed tokens without padding, the same at every call."""
        generator = torch.Generator().manual_seed(1)
        shape = (batch, self.n_heads, n or self.n_tokens, self.d_head)
        drawn = (torch.randn(shape, generator=generator, dtype=dtype).to(self.device) for _ in range(3))
        return Tokens(*drawn)

    def padded_tokens(self, *, dtype: torch.dtype = torch.float32) -> Tokens:
        """Three examples: without padding, with two padded tokens at the end, and with one real token."""
        n_real = torch.tensor([self.n_tokens, self.n_tokens - 2, 1], device=self.device)
        mask = torch.arange(self.n_tokens, device=self.device) < n_real[:, None]
        return self.tokens(dtype=dtype)._replace(mask=mask)

    def attend(self, tokens: Tokens, seed: int = 0, *, module: nn.Module | None = None, **arguments: Any) -> Any:
        """The module's output for a generator that starts from ``seed``."""
        arguments = {"generator": torch.Generator().manual_seed(seed)} | arguments
        key_mask = tokens.mask if tokens.key_mask is None else tokens.key_mask
        masks = {"query_mask": tokens.mask, "key_mask": key_mask}
        return (module or self.module)(tokens.query, tokens.key, tokens.value, **masks, **arguments)

    def compare(
        self, one: Callable[[int], Tensor], other: Callable[[int], Tensor], expected: str, do: str, *, tol: float = 1e-4
    ) -> None:
        """Raises SbmtError unless two functions of the seed return the same.

        The same numbers from the same seed always pass. If the module is random, equal means over ``n_draws`` other
        seeds pass too, up to six standard errors: the same distribution need not mean the same draws.
        """
        first, second = one(0), other(0)
        if first.shape != second.shape:
            raise SbmtError(expected, f"shapes {tuple(first.shape)} and {tuple(second.shape)}", do)
        allowed = torch.full_like(first, tol) * (1 + first.abs())
        kind = "a difference"
        if self.is_random and not is_close(first, second, tol):
            draws = (
                torch.stack([draw(start + seed).double() for seed in range(self.n_draws)])
                for draw, start in ((one, 1), (other, 1 + self.n_draws))
            )
            (first, variance), (second, other_variance) = ((d.mean(0), d.var(0)) for d in draws)
            allowed = STANDARD_ERRORS * ((variance + other_variance) / self.n_draws).sqrt() + tol
            kind = f"means over {self.n_draws} draws with a difference"
        off = (first - second).abs()
        is_off = ~(off <= allowed)  # True for NaN as well
        if bool(is_off.any()):
            worst = float(off[is_off].max())
            raise SbmtError(expected, f"{kind} of {worst:.3g} ({int(is_off.sum())} of {off.numel()} numbers off)", do)


def is_close(one: Tensor, other: Tensor, tol: float = 1e-4) -> bool:
    """Whether two tensors agree up to ``tol``, absolute and relative; NaN agrees with nothing."""
    return bool(torch.allclose(one, other, rtol=tol, atol=tol))


def make_subject(
    module: nn.Module,
    *,
    n_heads: int | None = None,
    d_head: int | None = None,
    n_tokens: int = 6,
    is_position_free: bool | None = None,
    n_draws: int = 128,
) -> Subject:
    """Copies the attention and infers what is not given; see :func:`sbmt.testing.check_attention`."""
    if not isinstance(module, nn.Module):
        raise SbmtError("an attention as a torch.nn.Module", type(module).__name__, "wrap it in a module")
    if n_tokens < 3 or n_draws < 2:
        raise SbmtError("n_tokens ≥ 3 and n_draws ≥ 2", (n_tokens, n_draws), "two tokens of an example are padded")
    if is_position_free is None:
        is_position_free = not hasattr(module, "n_positions") and not getattr(module, "window", None)
    module = copy.deepcopy(module).eval()
    n_heads, d_head = (
        getattr(module, name, None) if given is None else given
        for name, given in (("n_heads", n_heads), ("d_head", d_head))
    )
    if not isinstance(n_heads, int) or not isinstance(d_head, int):
        n_heads, d_head = _find_sizes(module, n_heads, d_head, n_tokens, is_position_free)
    subject = Subject(module, n_heads, d_head, n_tokens, is_position_free, n_draws)
    return replace(subject, is_random=is_random(subject))


def _find_sizes(module: nn.Module, n_heads: Any, d_head: Any, n_tokens: int, is_free: bool) -> tuple[int, int]:
    """The first heads and width that the module takes."""
    last: object = None
    all_heads = (n_heads,) if isinstance(n_heads, int) else HEADS
    for heads, width in product(all_heads, (d_head,) if isinstance(d_head, int) else WIDTHS):
        subject = Subject(module, heads, width, n_tokens, is_free, 2)
        try:
            subject.attend(subject.tokens(1))
        except Exception as error:  # whatever a module says to sizes that are not its own
            last = error
        else:
            return heads, width
    raise SbmtError("a module that takes some number of heads and some width", last, "give n_heads and d_head")


def is_random(subject: Subject) -> bool:
    """Whether the seed changes what the attention returns."""
    try:
        first, *others = (subject.attend(subject.tokens(), seed).values.detach() for seed in range(SEEDS))
        return not all(is_close(first, other, 1e-6) for other in others)
    except Exception:  # the checks will report what is wrong
        return False
