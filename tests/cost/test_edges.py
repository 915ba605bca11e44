"""What an edge costs, against arithmetic that counts itself."""

import torch

from sbmt import EdgeList, build_attention, edge_attention
from sbmt.cost import count_operations
from sbmt.cost.masks import edge_parts
from tests.cost.counted_numbers import attend_counting


def test_an_edge_costs_what_arithmetic_takes():
    query, key, value = (torch.randn(11, 5, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(11, 11) < 0.6
    mask[0] = False
    out, tally = attend_counting(query, key, value, mask)

    edges = EdgeList.from_dense(mask[None, None])
    theirs = edge_attention(*(x[None, None] for x in (query, key, value)), edges)
    torch.testing.assert_close(torch.tensor(out, dtype=torch.float64), theirs[0, 0])

    sizes = {"m": edges.n_edges, "d": 5}
    for part in edge_parts("auto"):
        stage = part.name.removesuffix(" per edge")
        assert part.flops.at(sizes) + part.elementwise.at(sizes) == tally.total(stage), stage
    assert tally.found["softmax"] == dict.fromkeys(("compare", "subtract", "exp", "add", "divide"), edges.n_edges)


def test_all_edges_cost_what_full_attention_costs():
    settings = dict(d_head=4, n_heads=2)
    full = {row.part: row for row in count_operations(build_attention("full", **settings), 30).rows}
    sparse = count_operations(build_attention("random_mask", mask_density=1.0, **settings), 30).rows
    per_edge = {row.part.removesuffix(" per edge"): row for row in sparse if row.part.endswith(" per edge")}
    assert len(per_edge) == 3
    for name, row in per_edge.items():
        (same,) = (other for part, other in full.items() if part.startswith(name))
        assert (row.n_flops, row.n_elementwise) == (same.n_flops, same.n_elementwise)
