"""Block models of crossed partitions, and the dense models of the same memberships."""

import torch

from sbmt import BlockModel, EdgeList
from sbmt.block_model.crossed import CrossedModel, part_memberships

BATCH, HEADS, N, M, GROUPS, SIZE = 2, 3, 9, 11, 2, 3


def twin(logits):
    """Returns the softmax over the two largest logits of each partition, with all partitions concatenated."""
    logits = logits.movedim(-1, 2)  # batch heads n partitions size
    least = logits.topk(min(2, logits.shape[-1]), -1).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf).softmax(-1).flatten(-2)


def padding(n_keys=M):
    """Returns masks where the second example has four real queries, and 6 real keys fewer than the first."""
    lengths = torch.tensor([[N], [4]]), torch.tensor([[n_keys - 5], [n_keys]])
    return [torch.arange(n) < length for n, length in zip((N, n_keys), lengths, strict=True)]


def leaves_of(n_keys=M, size=SIZE, scale=1.0, seed=5):
    """Returns logits of queries and keys, and asymmetric blocks."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(BATCH, HEADS, 2 * GROUPS, size, n) for n in (N, n_keys)]
    logits = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    blocks = torch.rand(HEADS, 2 * GROUPS, size, size, generator=generator, dtype=torch.float64) * scale**0.5
    return [leaf.requires_grad_() for leaf in (*logits, blocks)]


def crossed_model(leaves=None, is_padded=False, **sizes):
    query, key, blocks = leaves or leaves_of(**sizes)
    masks = padding(key.shape[-1]) if is_padded else (None, None)
    return CrossedModel(part_memberships(query), blocks, part_memberships(key), *masks)


def dense_model(leaves, is_padded=False):
    """Returns the same model with Kronecker blocks and memberships in pairs of parts."""
    query, key, blocks = leaves

    def in_pairs(logits):
        first, second = twin(logits).unflatten(-1, (GROUPS, 2, -1)).unbind(-2)
        return torch.einsum("...ga,...gb->...gab", first, second).flatten(-3)

    kron = [torch.block_diag(*(torch.kron(*head[2 * g : 2 * g + 2]) for g in range(GROUPS))) for head in blocks]
    masks = padding(key.shape[-1]) if is_padded else (None, None)
    return BlockModel(in_pairs(query), torch.stack(kron), in_pairs(key), *masks, link="poisson")


def edges_of(model, density=0.3):
    is_edge = torch.rand(model.shape, generator=torch.Generator().manual_seed(0)) < density
    for mask, axis in ((model.query_mask, -1), (model.key_mask, -2)):
        if mask is not None:
            is_edge &= mask[:, None].unsqueeze(axis)
    return EdgeList.from_dense(is_edge, model.query_mask, model.key_mask)
