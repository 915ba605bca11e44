"""Whether memberships and a block matrix are what a block model is made of."""

import torch
from torch import Tensor

from sbmt.errors import SbmtError

TOLERANCE = 1e-6  # how far outside [0, 1] rounding may carry a membership


def as_float(*tensors: Tensor) -> list[Tensor]:
    """Memberships of queries, block matrix, memberships of keys: in float64 if any is, else in float32."""
    for name, tensor in zip(("query_membership", "block_matrix", "key_membership"), tensors, strict=True):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise SbmtError(f"{name} as a floating-point tensor", kind, "convert it with torch.as_tensor(…).float()")
    if len({t.device for t in tensors}) > 1:
        raise SbmtError("memberships and block matrix on one device", [str(t.device) for t in tensors], "move them")
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    return [t.to(dtype) for t in tensors]


def check_shapes(
    query: Tensor, block: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None
) -> tuple[int, int]:
    """The number of examples and of heads that all of them broadcast to."""
    do = "see BlockModel's Args for the shapes; leading dimensions of size 1 broadcast"
    shapes = f"query_membership {tuple(query.shape)}, block_matrix {tuple(block.shape)}, "
    shapes += f"key_membership {tuple(key.shape)}"
    masks = {
        name: m for name, m in (("query_mask", query_mask), ("key_mask", key_mask)) if isinstance(m, Tensor) and m.dim()
    }
    shapes += "".join(f", {name} {tuple(m.shape)}" for name, m in masks.items())
    if query.dim() != 4 or key.dim() != 4 or block.dim() != 3:
        raise SbmtError("memberships with 4 dimensions and a block matrix with 3", shapes, do)
    if not query.shape[3] == key.shape[3] == block.shape[1] == block.shape[2]:
        raise SbmtError("one number of clusters k in (…, n, k), (heads, k, k) and (…, m, k)", shapes, do)
    if 0 in (*query.shape, *key.shape, *block.shape):
        raise SbmtError("at least one example, head, query, key and cluster", shapes, do)
    heads = {query.shape[1], block.shape[0], key.shape[1]} - {1}
    batches = {t.shape[0] for t in (query, key, *masks.values())} - {1}
    if len(heads) > 1 or len(batches) > 1:
        raise SbmtError("equal (or broadcasting) batch sizes and head counts", shapes, do)
    return batches.pop() if batches else 1, heads.pop() if heads else 1


def in_range(name: str, value: Tensor, upper: float) -> Tensor:
    """The tensor without what rounding carried over the ends of its range."""
    low, high = (x.item() for x in torch.aminmax(value.detach()))
    if not (low >= -TOLERANCE and high <= upper * (1 + TOLERANCE)):  # NaN fails both
        got = f"values from {low:g} to {high:g}"
        raise SbmtError(f"{name} in [0, {upper:g}] without NaN", got, "check what made it")
    return value.clamp(0.0, upper) if low < 0 or high > upper else value
