"""Counter-based random numbers, where every draw has an address and so does not depend on other draws.

A draw's address is (seed, example, head, row, purpose, index). The generator is Philox4x32-10, a keyed bijection of
128-bit counters: the seed is the key, and the rest of the address is the counter. Draws therefore do not depend on
their order, the split into batches, the device or the number of threads.

The paper names no generator. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.utils.module_tracker import ModuleTracker

from sbmt.errors import SbmtError
from sbmt.types import not_compiled

WORD = 1 << 32  # a random word is an integer in [0, WORD)
_MASK = WORD - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_CHUNK = 1 << 16  # blocks per pass, so that the working set stays in cache
MAX_HEADS = 1 << 28  # the purpose occupies the upper four bits of the head's counter word


class Purpose(IntEnum):
    """The purpose of a stream. Streams for different purposes are independent."""

    CELL = 0  # one uniform per query-key pair
    COUNT = 1  # the number of a row's candidate edges
    CANDIDATE = 2  # the keys that candidate edges lead to
    KEEP = 3  # whether a distinct candidate is kept


def draw_seed(generator: torch.Generator | None = None, to: torch.device | None = None) -> Any:
    """Draws one int64 from ``generator``, by default torch's CPU generator; raises SbmtError for other types.

    Returns an int or, if a device ``to`` is passed, a tensor on that device, without synchronising with it.
    """
    if generator is not None:
        if not isinstance(generator, torch.Generator):
            raise SbmtError(f"generator must be a torch.Generator or None, got {type(generator).__name__}")
        _check_not_recomputing(generator)
    device = "cpu" if generator is None else generator.device
    low, high = -(1 << 63), (1 << 63) - 1
    seed = torch.randint(low, high, (), dtype=torch.int64, generator=generator, device=device)
    return int(seed) if to is None else seed.to(to, non_blocking=True)


_tracker = ModuleTracker()  # tells whether a backward pass is running
_MOST_USED = 64
_used: dict[int, torch.Generator] = {}  # last used in forward passes, by id (torch 2.11 has no weak references to them)


@not_compiled
def _check_not_recomputing(generator: torch.Generator) -> None:
    """Raises SbmtError if a generator would give a different mask in the backward pass.

    Activation checkpointing repeats the forward pass within the backward pass. It first restores torch's own
    generators, but not a generator passed as an argument, which would continue with its next number. A generator that
    is created or seeded inside the checkpointed function repeats its numbers and is accepted.
    """
    if not _tracker.is_bw:
        _used.pop(id(generator), None)
        _used[id(generator)] = generator
        for oldest in list(_used)[:-_MOST_USED]:
            _used.pop(oldest, None)
    elif id(generator) in _used:
        seeded = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        if not torch.equal(generator.get_state(), seeded.get_state()):
            rule = "activation checkpointing cannot repeat random numbers unless the function creates the generator"
            raise SbmtError(f"{rule}: create one inside the checkpointed function, or use torch.manual_seed")
        _used.pop(id(generator), None)


_first_example: ContextVar[int] = ContextVar("first_example", default=0)


@contextmanager
def examples_from(first_example: int) -> Iterator[None]:
    """Makes the numbers of each batch's examples start at ``first_example`` inside the ``with`` block.

    For example, a process with examples 4…7 of a batch of eight then makes the same draws as a single process would.
    """
    if not isinstance(first_example, int) or first_example < 0:
        raise SbmtError(f"first_example must be a non-negative integer, got {first_example}")
    token = _first_example.set(first_example)
    try:
        yield
    finally:
        _first_example.reset(token)


def number_examples(first_example: int, n_examples: int) -> int:
    """Returns ``first_example`` plus the start that :func:`examples_from` sets; raises SbmtError beyond 32 bits."""
    if not isinstance(first_example, int) or not 0 <= first_example + _first_example.get() <= WORD - n_examples:
        raise SbmtError(f"first_example must be an integer in [0, 2³² - {n_examples}], got {first_example}")
    return first_example + _first_example.get()


def philox(seed: int, counter: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """Applies Philox4x32-10 to int64 vectors of 32-bit counter words; returns ``(4, n)`` int64 words below 2³²."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_ROUNDS):
        # A product of two 32-bit words fits into 64 bits; the mask removes the sign that int64 gives its upper half.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, ((p0 >> 32) & _MASK) ^ c3 ^ k1
        c1, c3 = p1 & _MASK, p0 & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return torch.stack([c0, c1, c2, c3])


def random_blocks(seed: int, purpose: Purpose, example: Tensor, head: Tensor, row: Tensor, block: Tensor) -> Tensor:
    """Returns four random words per address, ``(*broadcast, 4)`` int64 in [0, 2³²), for int64 tensors that broadcast.

    ``example`` is a number within the whole batch, ``row`` is the number of a query, and ``block`` is a position in the
    stream in units of four words. All are below 2³², and ``head`` is below 2²⁸. Cost: about 120 operations per address.
    """
    shape = torch.broadcast_shapes(example.shape, head.shape, row.shape, block.shape)
    head = head + (int(purpose) * MAX_HEADS)
    words = [c.expand(shape).reshape(-1) for c in (block, row, head, example)]
    out = torch.empty((words[0].numel(), 4), dtype=torch.int64, device=block.device)
    for start in range(0, out.shape[0], _CHUNK):
        c0, c1, c2, c3 = (c[start : start + _CHUNK] for c in words)
        out[start : start + _CHUNK] = philox(seed, (c0, c1, c2, c3)).T
    return out.reshape(*shape, 4)


def cell_words(seed: int, purpose: Purpose, example: Tensor, head: Tensor, row: Tensor, n_keys: int) -> Tensor:
    """Returns one random word per row and key, ``(n_rows, n_keys)``, where key j gets word j % 4 of block j // 4."""
    blocks = torch.arange(-(-n_keys // 4), device=row.device)
    words = random_blocks(seed, purpose, example[:, None], head[:, None], row[:, None], blocks)  # rows n/4 4
    return words.flatten(1)[:, :n_keys]


def edge_words(seed: int, purpose: Purpose, example: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """Returns the words of :func:`cell_words` at individual cells; its arguments and result are ``(n_edges,)``."""
    words = random_blocks(seed, purpose, example, head, row, key // 4)
    return words.gather(1, (key % 4)[:, None]).squeeze(1)


def to_uniform(words: Tensor) -> Tensor:
    """Converts words to uniform float64 numbers, (word + ½) / 2³², which are never 0 or 1."""
    return (words.double() + 0.5) / WORD
