"""Block models of crossed partitions, and the dense models of the same memberships."""

import torch

from sbmt import BlockModel, EdgeList
from sbmt.block_model.crossed import CrossedModel, part_memberships
from sbmt.block_model.link import find_link

BATCH, HEADS, N, M, GROUPS, SIZE, ACTIVE = 2, 3, 9, 11, 2, 3, 2


def tokens(n, seed=0, dtype=torch.float64, width=4, device="cpu"):
    """Tokens, a map of them to nodes of width 5, and centres among these."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, HEADS, n, width, generator=generator, dtype=dtype)
    node_map = torch.nn.Linear(width, 5, dtype=dtype)
    with torch.no_grad():
        for parameter in node_map.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) / 2)
    centres = torch.randn(HEADS, 2 * GROUPS * SIZE, 5, generator=generator, dtype=dtype)
    return x.to(device).requires_grad_(), node_map.to(device), centres.to(device).requires_grad_()


def twin(x, node_map, centres, n_active=ACTIVE):
    """The softmax over each partition in which all but the largest logits are −∞."""
    logits = (node_map(x) @ centres.mT).unflatten(-1, (2 * GROUPS, -1))
    least = logits.topk(n_active, -1).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf).softmax(-1).flatten(-2)


def dense(part, weight):
    return weight.new_zeros(*weight.shape[:-1], 2 * GROUPS * SIZE).scatter_add(-1, part.long(), weight)


def crossing(in_parts):
    """Memberships in pairs of parts."""
    first, second = in_parts.unflatten(-1, (GROUPS, 2, SIZE)).unbind(-2)
    return torch.einsum("...ga,...gb->...gab", first, second).flatten(-3)


def both_models(masks=(None, None), scale=1.0, device="cpu"):
    """A crossed model with asymmetric blocks, and its dense twin, on the same leaves."""
    generator = torch.Generator().manual_seed(5)
    leaves = [tokens(n, seed, device=device)[0] for n, seed in ((N, 1), (M, 2))]
    _, node_map, centres = tokens(N, 3, device=device)
    masks = [mask if mask is None else mask.to(device) for mask in masks]
    shape = HEADS, 2 * GROUPS, SIZE, SIZE
    blocks = torch.rand(shape, generator=generator, dtype=torch.float64).mul(scale**0.5)
    blocks = blocks.to(device).requires_grad_()
    few = part_memberships(*leaves, node_map, centres, 2 * GROUPS, ACTIVE)
    model = CrossedModel(few[0], blocks, few[1], *masks, find_link("poisson"))
    pairs = torch.stack([torch.stack([torch.kron(*head[2 * g : 2 * g + 2]) for g in range(GROUPS)]) for head in blocks])
    query, key = (crossing(twin(x, node_map, centres)) for x in leaves)
    plain = BlockModel(query, pairs, key, *masks, link="poisson")
    return model, plain, [*leaves, *node_map.parameters(), centres, blocks]


def padding():
    lengths = torch.tensor([[N], [4]]), torch.tensor([[6], [M]])
    return [torch.arange(n) < length for n, length in zip((N, M), lengths, strict=True)]


def edges_of(model, density=0.3):
    is_edge = torch.rand(model.shape, generator=torch.Generator().manual_seed(0)).to(model.device) < density
    for mask, axis in ((model.query_mask, -1), (model.key_mask, -2)):
        if mask is not None:
            is_edge &= mask[:, None].unsqueeze(axis)
    return EdgeList.from_dense(is_edge, model.query_mask, model.key_mask)
