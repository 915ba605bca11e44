"""Sums over tokens of the products of two short vectors each."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from sbmt.precision import full_precision

CHUNK = 1024  # tokens that are summed first: a GPU forms a product of few rows and columns by few of its processors


def sum_of_products(
    x: Float[Tensor, "batch heads n sets a"], y: Float[Tensor, "batch heads n sets c"]
) -> Float[Tensor, "batch heads sets a c"]:
    r"""$\sum_t x_t y_t^\top$ for each set, over all tokens t."""
    n = x.shape[2]
    if missing := -n % min(CHUNK, n):
        x, y = (pad(t, (0, 0, 0, 0, 0, missing)) for t in (x, y))
    x, y = (t.unflatten(2, (-1, min(CHUNK, n))) for t in (x, y))
    with full_precision(x):
        return torch.einsum("bhktfa,bhktfc->bhkfac", x, y).sum(2)
