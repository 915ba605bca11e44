"""Calls every compiled kernel on inputs of odd sizes, and compares with plain torch what it computed.

A script, ``python -m tests.kernels.cpu.every_kernel``, so that it can be run with checked indices and on a directory of
machine code of its own; ``--small`` leaves out the largest size. Prints, as JSON, whether indices were checked and each
kernel's signatures, cache hits and cache misses.
"""

import json
import sys
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numba
import numpy as np
import torch

import sbmt.kernels.cpu
from sbmt import BlockModel, sample_edges
from sbmt.attention import dropout as drawing
from sbmt.attention import edge_attention
from sbmt.block_model.crossed import CrossedModel, part_memberships
from sbmt.block_model.link import find_link
from sbmt.block_model.pair_products import edge_dot, edge_gate
from sbmt.graph.csr import merge_rows, merge_rows_by_sorting, transpose_by_sorting
from sbmt.kernels.cutoffs import Cutoff
from tests.kernels.cpu.samples import uneven_model
from tests.samplers.laws import DRAWS

WAYS = ("exact by skipping", "exact by clusters")
SHAPES = [  # batch heads n_queries n_keys n_clusters, and the widths of keys and values
    (1, 1, 1, 1, 1, 1, 1),
    (2, 3, 5, 67, 3, 5, 2),
    (3, 1, 41, 130, 17, 4, 9),
]


def main():
    torch.set_num_threads(2)
    along_edges = dict.fromkeys(("edge_dot", "edge_gate"), Cutoff(0, 1.0))
    with (
        patch("sbmt.kernels.cpu.parallel._LEAST_WORK", 1),  # so that parts begin and end everywhere
        patch("sbmt.block_model.pair_products.cutoffs", return_value=along_edges),
    ):
        for dtype in (torch.float32, torch.float64):
            for shape in SHAPES[:2] if "--small" in sys.argv else SHAPES:
                drawn = list(draw_edges(shape[:5], dtype))
                check_crossed(dtype, *shape[:5])
                check_csr(drawn)
                for edges in drawn:
                    check_products(edges, dtype, shape[5])
                    check_attention(edges, dtype, *shape[5:])
                    check_uniforms(edges)
    is_checked = bool(numba.config.BOUNDSCHECK)
    if is_checked:
        call_out_of_range()
    report = {"is_checked": is_checked, "kernels": {name: statistics(kernel) for name, kernel in kernels()}}
    print(json.dumps(report))


def draw_edges(shape, dtype):
    """Both ways, both links, with padding, and with less room than it takes; every edge list is checked."""
    batch, _, n_queries, n_keys, _ = shape
    masks = [torch.arange(n) < (n - torch.arange(batch)[:, None]).clamp(min=1) for n in (n_queries, n_keys)]
    for way in WAYS:
        constants = {"kernels.cpu.draws.tables._ENTRIES": 20, "kernels.cpu.draws.sample._SPARE": (1.0, -1e9)} | DRAWS[
            way
        ][1]
        patches = [patch(f"sbmt.{name}", value) for name, value in constants.items()]
        for link, padding, exploration in (
            ("bilinear", masks, 0.05),
            ("bilinear", (None, None), 0.0),
            ("poisson", masks, 0.3),
        ):
            model = uneven_model(*shape, dtype=dtype)
            model = BlockModel(model.query_membership, model.block_matrix, model.key_membership, *padding, link=link)
            for each in patches:
                each.start()
            edges = sample_edges(model, exploration=exploration, generator=seeded())
            for each in patches:
                each.stop()
            yield replace(edges, check=True)


def check_crossed(dtype, batch, heads, n_queries, n_keys, n_parts):
    """Rates against the dense model, along edges that were drawn key by key and by points."""
    masks = [torch.arange(n) < (n - torch.arange(batch)[:, None]).clamp(min=1) for n in (n_queries, n_keys)]
    nodes = [
        torch.randn(batch, heads, n, 3, generator=seeded(), dtype=dtype, requires_grad=True)
        for n in (n_queries, n_keys)
    ]
    centres = torch.randn(heads, 4 * n_parts, 3, generator=seeded(), dtype=dtype)
    blocks = torch.rand(heads, 4, n_parts, n_parts, generator=seeded(), dtype=dtype).requires_grad_()
    few = [part_memberships(x, centres, 4, min(2, n_parts)) for x in nodes]
    model = CrossedModel(few[0], blocks, few[1], *masks, find_link("poisson"))
    dense = BlockModel(model.query_membership, model.blocks, model.key_membership, *masks, link="poisson")
    leaves = [*nodes, blocks]
    for points in (0.0, 1e9):
        with patch("sbmt.kernels.cpu.draws.crossed._DENSE", points):
            edges = replace(sample_edges(model, exploration=0.1, generator=seeded()), check=True)
        for found, expected in (
            [m.edge_rate(edges) for m in (model, dense)],
            [m.sum_of_rates() / (n_queries * n_keys) for m in (model, dense)],
        ):
            same([found], [expected], dtype)
            same(*(torch.autograd.grad(rate.sum(), leaves, retain_graph=True) for rate in (found, expected)), dtype)


def check_csr(drawn):
    for edges, other in zip(drawn, drawn[1:] + drawn[:1], strict=True):
        twin = transpose_by_sorting(edges.row_ptr, edges.keys, *edges.shape[2:])
        assert all(torch.equal(a, b) for a, b in zip(edges.by_key, twin, strict=True))
        arguments = edges.row_ptr, edges.keys, other.row_ptr, other.keys, edges.shape[3]
        twin = merge_rows_by_sorting(*arguments)
        assert all(torch.equal(a, b) for a, b in zip(merge_rows(*arguments), twin, strict=True))


def check_products(edges, dtype, width):
    leaves = normal(edges, dtype, (2, width), (3, width))
    incoming = torch.linspace(-1, 2, edges.n_edges, dtype=dtype)
    expected = (leaves[0] @ leaves[1].mT).flatten()[edges.cells()]
    gradients = torch.autograd.grad(expected, leaves, incoming)
    found = edge_dot(*leaves, edges)
    same([found], [expected], dtype)
    same(torch.autograd.grad(found, leaves, incoming), gradients, dtype)
    same(torch.autograd.grad(edge_gate(*leaves, edges), leaves, incoming), gradients, dtype)


def check_attention(edges, dtype, width, value_width):
    leaves = normal(edges, dtype, (2, width), (3, width), (3, value_width))
    gate = (torch.rand(edges.n_edges, generator=seeded(), dtype=dtype) + 0.5).requires_grad_()
    terms = {
        name: torch.randn(n, generator=seeded(), dtype=dtype).requires_grad_()
        for name, n in (("bias", edges.n_edges), ("sink", edges.shape[1]))
    }
    for dropout, more in product((0.0, 0.3), ({}, terms)):
        for gate_rule, used in (("score", leaves), ("score", [*leaves, gate]), ("weight", [*leaves, gate])):
            results = []
            for backend in ("cpu", "dense"):
                options = dict(gate_rule=gate_rule, backend=backend, dropout=dropout, generator=seeded(), **more)
                found = edge_attention(*used[:3], edges, *used[3:], **options, return_weights=True)
                loss = found[0].square().sum() + (found[1].square().sum() if more else 0)
                results.append([*found, *torch.autograd.grad(loss, [*used, *more.values()])])
            same(*results, dtype)


def check_uniforms(edges):
    found = drawing._cell_uniforms(edges, -3, 0)
    with patch("sbmt.attention.dropout.can_run_on", lambda device: False):
        assert torch.equal(found, drawing._cell_uniforms(edges, -3, 0))


def call_out_of_range():
    """Checked, an index beyond the end is an error."""
    from sbmt.kernels.cpu.products import dots

    try:
        dots(np.ones(2), np.ones((3, 2)), 0, np.array([3]), 0, 1, np.empty(1))
    except IndexError:
        return
    raise AssertionError("indices are not checked")


def kernels():
    """Every kernel of the package by its dotted name."""
    root = Path(sbmt.kernels.cpu.__file__).parent
    for path in sorted(root.rglob("[a-z]*.py")):
        module = import_module(".".join(["sbmt.kernels.cpu", *path.relative_to(root).with_suffix("").parts]))
        for name, thing in vars(module).items():
            if hasattr(thing, "py_func") and thing.py_func.__module__ == module.__name__:
                yield f"{path.stem}.{name}", thing


def statistics(kernel):
    stats = kernel.stats
    return len(kernel.signatures), sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


def normal(edges, dtype, *axes_and_widths):
    """Random leaves over the axes of the edges' shape that are named: 2 for queries, 3 for keys."""
    generator = seeded()
    sizes = [(*edges.shape[:2], edges.shape[axis], width) for axis, width in axes_and_widths]
    return [torch.randn(size, generator=generator, dtype=dtype).requires_grad_() for size in sizes]


def seeded():
    return torch.Generator().manual_seed(0)


def same(found, expected, dtype):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e3 * torch.finfo(dtype).eps)


if __name__ == "__main__":
    main()
