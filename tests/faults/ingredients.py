"""What degenerate inputs are made of: a name and a seed for every tensor, so that a case prints as plain values."""

import math

import pytest
import torch

from sbmt import SbmtError

SIZES = (1, 2, 3, 5, 4, 7) * 8 + (0,)  # hypothesis shrinks towards the first; 0 is refused everywhere
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LAYOUTS = ("plain", "transposed", "strided", "heads last", "cut out", "expanded")
PADDING = ("none", "all real", "ragged", "single", "holes", "one example", "everything", "shared")
JUNK = (0.0, math.nan, math.inf, -math.inf, 1e30, 1e4)
"""What may stand at padding."""
SHARES = ("random", "ones", "zeros", "one-hot", "tiny", "denormal", "mixed")
"""Memberships and block matrices."""
EXACT_SHARES = ("ones", "zeros", "one-hot")
"""Those whose products are exact in every type."""
EXPLORATIONS = (0.0, 0.01, 1e-12, 0.5, 0.999999)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def normal(shape, seed, dtype=torch.float32, scale=1.0):
    """Normally distributed, times a scale whose type holds it."""
    return (torch.randn(shape, generator=seeded(seed), dtype=torch.float64) * scale).to(dtype)


def holds(dtype, number):
    """Whether a type has room for a number of this size."""
    return abs(number) < torch.finfo(dtype).max


def shares(kind, shape, seed, dtype=torch.float32):
    """Numbers in [0, 1]."""
    generator = seeded(seed)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    if kind == "one-hot":
        chosen = torch.randint(shape[-1], shape[:-1], generator=generator)
        return torch.nn.functional.one_hot(chosen, shape[-1]).to(dtype)
    if kind == "mixed":
        known = torch.tensor([0.0, 1.0, 0.5, 1e-30, least, 1 - 2**-10], dtype=torch.float64)
        return known[(uniform * len(known)).long()].to(dtype)
    made = {
        "zeros": uniform.new_zeros(shape),
        "ones": uniform.new_ones(shape),
        "random": uniform,
        "tiny": uniform * 1e-30,
        "denormal": uniform.new_full(shape, least),
    }
    return made[kind].to(dtype)


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


def real_pairs(query_mask, key_mask, shape):
    """``(batch, 1, n_queries, n_keys)``."""
    batch, _, n_queries, n_keys = shape
    return real(query_mask, batch, n_queries)[:, None, :, None] & real(key_mask, batch, n_keys)[:, None, None, :]


def tokens(shape, seed, dtype, scale=1.0, mask=None, junk=0.0, is_shared=False):
    """Normal numbers, and junk at padding; of one example where all share it, which is then padded if it is in all."""
    x = normal((1, *shape[1:]) if is_shared else shape, seed, dtype, scale if holds(dtype, 9 * scale) else 1.0)
    if mask is None:
        return x
    is_padding = ~mask.any(0, keepdim=True) if is_shared else ~mask
    return x.masked_fill(is_padding[:, None, :, None], junk if math.isnan(junk) or holds(dtype, junk) else math.inf)


def laid_out(x, layout, batch=1):
    """The same numbers elsewhere in memory; ``"expanded"`` repeats one example."""
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
