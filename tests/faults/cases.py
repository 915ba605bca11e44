"""What degenerate inputs are made of. Every part is drawn by name, so that a failing case prints as plain values."""

import math

import pytest
import torch
from hypothesis import strategies as st

from sbmt import SbmtError

SIZES = (1, 2, 3, 5, 4, 7) * 8 + (0,)  # hypothesis shrinks towards the first; 0 is refused everywhere
LENGTHS = (*SIZES, *(9, 66, 130) * 5)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LAYOUTS = ("plain", "transposed", "strided", "heads last", "cut out", "expanded")
PADDING = ("none", "all real", "ragged", "single", "holes", "one example", "everything", "shared")
SHARES = ("random", "ones", "zeros", "one-hot", "tiny", "denormal", "mixed")
"""Memberships and block matrices."""


class Case:
    """Draws the parts of a case, and makes tensors from its seed.

    Args:
        data: What ``st.data()`` gives to a test.
    """

    def __init__(self, data):
        self._data = data
        self.seed = self.pick("seed", st.integers(0, 1 << 32))

    def pick(self, name, choices):
        """One of several values, or a draw from a strategy."""
        strategy = choices if isinstance(choices, st.SearchStrategy) else st.sampled_from(choices)
        return self._data.draw(strategy, label=name)

    def flag(self, name):
        return self.pick(name, st.booleans())

    def shape(self):
        """Batch, heads, queries and keys: of one sequence, or of two."""
        batch, heads, n_queries = (self.pick(name, c) for name, c in zip(SHAPE, (SIZES, SIZES, LENGTHS), strict=False))
        return batch, heads, n_queries, n_queries if self.flag("one length") else self.pick(SHAPE[3], LENGTHS)

    def generator(self, offset=0):
        return seeded(self.seed + offset)

    def shares(self, name, shape, dtype=torch.float32, offset=0):
        """Numbers in [0, 1]."""
        return shares(self.pick(name, SHARES), shape, self.seed + offset, dtype)

    def masks(self, shape):
        """Padding masks of queries and of keys."""
        batch, _, *lengths = shape
        kinds = (self.pick(f"{name} padding", PADDING) for name in ("query", "key"))
        return [padding(kind, batch, n, self.seed + i) for i, (kind, n) in enumerate(zip(kinds, lengths, strict=True))]

    def junk(self):
        """What stands at padding."""
        return self.pick("junk", (0.0, math.nan, math.inf, -math.inf, 1e30, 1e4))


SHAPE = ("batch", "heads", "queries", "keys")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def normal(shape, seed, dtype=torch.float32, scale=1.0):
    """Normally distributed numbers times a scale, or times 1 if the type has no room for them."""
    scale = scale if 9 * scale < torch.finfo(dtype).max else 1.0
    return (torch.randn(shape, generator=seeded(seed), dtype=torch.float64) * scale).to(dtype)


def shares(kind, shape, seed, dtype):
    """Numbers in [0, 1] of a kind."""
    generator = seeded(seed)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    if kind == "one-hot":
        chosen = torch.randint(shape[-1], shape[:-1], generator=generator)
        return torch.nn.functional.one_hot(chosen, shape[-1]).to(dtype)
    if kind == "mixed":
        known = torch.tensor([0.0, 1.0, 0.5, 1e-30, least, 1 - 2**-10], dtype=torch.float64)
        return known[(uniform * len(known)).long()].to(dtype)
    constants = {"zeros": 0.0, "ones": 1.0, "denormal": least}
    if kind in constants:
        return torch.full(shape, constants[kind], dtype=dtype)
    return (uniform * (1e-30 if kind == "tiny" else 1.0)).to(dtype)


def padding(kind, batch, n, seed):
    """A mask of ``batch`` examples of ``n`` tokens, True = real; None where it is left out."""
    if kind == "none":
        return None
    mask = torch.ones(batch, n, dtype=torch.bool)
    generator = seeded(seed)
    if kind == "ragged":
        mask = torch.arange(n) < torch.randint(1, n + 1, (batch, 1), generator=generator)
    elif kind == "single":
        mask = torch.arange(n) == torch.randint(n, (batch, 1), generator=generator)
    elif kind == "holes":
        mask = torch.rand(batch, n, generator=generator) < 0.5
    elif kind == "one example":
        mask[int(torch.randint(batch, (), generator=generator))] = False
    elif kind == "everything":
        mask[:] = False
    elif kind == "shared":
        mask = torch.rand(1, n, generator=generator) < 0.7
    return mask


def real(mask, batch, n):
    """The mask written out."""
    return torch.ones(batch, n, dtype=torch.bool) if mask is None else mask.expand(batch, n)


def real_pairs(masks, shape):
    """``(batch, heads, n_queries, n_keys)``."""
    query, key = (real(mask, shape[0], n) for mask, n in zip(masks, shape[2:], strict=True))
    return (query[:, None, :, None] & key[:, None, None, :]).expand(shape)


def laid_out(x, layout, batch=1):
    """The same numbers elsewhere in memory; ``"expanded"`` repeats an only example."""
    if layout == "transposed":
        return x.mT.contiguous().mT
    if layout == "strided":
        return torch.stack([x, x], -1)[..., 0]
    if layout == "heads last":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "cut out":
        return torch.nn.functional.pad(x, (1, 2, 2, 1))[..., 2:-1, 1:-2]
    if layout == "expanded":
        return x.expand(batch, *x.shape[1:])
    return x


def is_finite(*tensors):
    """Whether no number is NaN or infinite; None counts as nothing."""
    return all(bool(t.isfinite().all()) for t in tensors if t is not None)


def gradients(loss, leaves):
    """Gradients of a loss, None where it does not depend on a leaf."""
    if not loss.requires_grad or not any(leaf.requires_grad for leaf in leaves):
        return [None] * len(leaves)
    return torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True)


def refused(words="expected "):
    """The block raises the library's one error with these words, and nothing else."""
    return pytest.raises(SbmtError, match=words)
