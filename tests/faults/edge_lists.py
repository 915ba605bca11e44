"""Edge lists from nothing to everything: conversions there and back, unions, transposes, patterns, and damaged ones."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from sbmt import EdgeList
from sbmt.graph.csr import transpose_by_sorting
from sbmt.graph.patterns import is_in_window, sliding_window
from tests.faults.ingredients import LAYOUTS, PADDING, SIZES, laid_out, padding, real_pairs, refused, seeded

DENSITIES = (0.5, 0.0, 1.0, 0.1, 0.9)
DAMAGES = ("none", "row_ptr starts late", "row_ptr falls", "row_ptr ends early", "a key too large", "a negative key",
           "keys that repeat", "keys that fall", "int32", "a row too few")  # fmt: skip
WINDOWS = (0, 1, 2, 3, 10**9, 1 << 62)


@dataclass(frozen=True)
class EdgeListCase:
    """Edges by the names of their parts."""

    shape: tuple[int, int, int, int]
    density: float
    query_padding: str
    key_padding: str
    layout: str
    damage: str
    window: int
    seed: int

    def masks(self):
        batch, _, n_queries, n_keys = self.shape
        return (
            padding(self.query_padding, batch, n_queries, self.seed),
            padding(self.key_padding, batch, n_keys, self.seed + 1),
        )

    def dense(self, masks, more=0):
        uniform = torch.rand(self.shape, generator=seeded(self.seed + more))
        return (uniform < self.density) & real_pairs(*masks, self.shape)


def edge_list_cases():
    """Any mask, any padding, and one kind of damage."""
    size = st.sampled_from(SIZES)
    sizes = st.tuples(size, size, size | st.sampled_from([9, 66]), size | st.sampled_from([9, 130]))
    return st.builds(
        EdgeListCase,
        shape=sizes | sizes.map(lambda s: (*s[:3], s[2])),
        density=st.sampled_from(DENSITIES),
        query_padding=st.sampled_from(PADDING),
        key_padding=st.sampled_from(PADDING),
        layout=st.sampled_from(LAYOUTS[:-1]),
        damage=st.sampled_from(DAMAGES) | st.just("none"),
        window=st.sampled_from(WINDOWS),
        seed=st.integers(0, 1 << 32),
    )


def check_edge_list(case):
    """Whatever is done with edges is what is done with the dense mask; what is no edge list is refused."""
    if 0 in case.shape:
        with refused("at least one example, head, query and key"):
            EdgeList.from_dense(torch.zeros(case.shape, dtype=torch.bool))
        return "refused"
    masks = case.masks()
    dense = case.dense(masks)
    edges = EdgeList.from_dense(laid_out(dense, case.layout), *masks)
    replace(edges, check=True)
    _check_conversions(case, edges, dense)
    _check_transpose(case, edges, dense)
    _check_union(case, edges, dense, masks)
    return _check_damage(case, edges)


def _check_conversions(case, edges, dense):
    batch, heads, n_queries, n_keys = case.shape
    assert torch.equal(edges.to_dense(), dense) and edges.n_edges == int(dense.sum())
    assert torch.equal(edges.cells(), dense.flatten().nonzero().squeeze(1))
    density = edges.density()
    n_pairs = real_pairs(edges.query_mask, edges.key_mask, case.shape).sum((2, 3))
    torch.testing.assert_close(density, dense.sum((2, 3)) / n_pairs.clamp(min=1))
    assert ((density >= 0) & (density <= 1)).all() and torch.equal(edges.n_pairs, n_pairs[:, 0])
    source, target = edges.to_edge_index()
    assert torch.equal(target * n_keys + source - target // n_queries * n_keys, edges.cells())
    last = edges.to_scipy(batch - 1, heads - 1)
    assert (last.toarray() == dense[-1, -1].numpy()).all()
    assert torch.equal(edges.to("cpu").to_dense(), dense)


def _check_transpose(case, edges, dense):
    turned = edges.transpose()
    replace(turned, check=True)
    assert torch.equal(turned.to_dense(), dense.mT)
    plain = transpose_by_sorting(edges.row_ptr, edges.keys, *case.shape[2:])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(edges.by_key, plain, strict=True))


def _check_union(case, edges, dense, masks):
    other = case.dense(masks, more=1)
    both = edges.union(EdgeList.from_dense(other, *masks))
    replace(both, check=True)
    assert torch.equal(both.to_dense(), dense | other)
    if case.shape[2] != case.shape[3]:
        with refused("as many queries as keys"):
            sliding_window(case.shape, case.window, *masks)
        with refused("as many queries as keys"):
            edges.with_self_loops()
        return
    place = torch.arange(case.shape[2])
    near = (place[:, None] - place).abs() <= case.window // 2
    window = sliding_window(case.shape, case.window, *masks)
    replace(window, check=True)
    assert torch.equal(window.to_dense(), near & real_pairs(*masks, case.shape).expand(case.shape))
    assert torch.equal(is_in_window(edges, case.window), near.expand(case.shape).flatten()[edges.cells()])
    itself = torch.eye(case.shape[2], dtype=torch.bool) & real_pairs(*masks, case.shape)
    assert torch.equal(edges.with_self_loops().to_dense(), dense | itself)


def _check_damage(case, edges):
    row_ptr, keys = edges.row_ptr.clone(), edges.keys.clone()
    twice = (keys.diff() > 0) & (edges.rows().diff() == 0)  # neighbours in one row
    if case.damage == "row_ptr starts late":
        row_ptr[0] = 1
    elif case.damage == "row_ptr falls" and row_ptr.numel() > 2:
        row_ptr[1] = row_ptr[-1] + 1
    elif case.damage == "row_ptr ends early":
        row_ptr[-1] -= 1
    elif case.damage == "a key too large" and keys.numel():
        keys[-1] = case.shape[3]
    elif case.damage == "a negative key" and keys.numel():
        keys[0] = -1
    elif case.damage == "keys that repeat" and twice.any():
        keys[1:][twice] = keys[:-1][twice]
    elif case.damage == "keys that fall" and twice.any():
        first = int(twice.nonzero()[0])
        keys[[first, first + 1]] = keys[[first + 1, first]]
    elif case.damage == "int32":
        row_ptr = row_ptr.int()
    elif case.damage == "a row too few":
        row_ptr = row_ptr[1:]
    else:
        return "answered"
    with refused():
        EdgeList(row_ptr, keys, case.shape, edges.query_mask, edges.key_mask, check=True)
    return "refused"
