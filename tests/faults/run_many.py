"""Calls the public functions with 10,000 degenerate or invalid inputs; writes ``results/faults.json``.

``make faults`` takes a few minutes on one core. Every case is drawn from its number: ``check_attention(Case(17))`` is
the same each time. The exit code is 1 if a property failed anywhere.
"""

import math
import random
import sys
import traceback
from collections import Counter
from pathlib import Path

import torch

import sbmt
from sbmt import BlockModel, EdgeList, SbmtError, build_attention, edge_attention, sample_edges
from sbmt.experiments.files import write_json
from sbmt.experiments.manifest import manifest

SIZES = (1, 2, 3, 4, 5, 7)
LENGTHS = (*SIZES * 5, 9, 66, 130)
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SBM = {
    "n_clusters": (1, 2, 9),
    "sampler": ("exact", "bernoulli", "fastrg"),
    "gate_rule": ("score", "weight"),
    "exploration": (0.01, 0.0, 0.999999, sbmt.ExtraKeys(1e-9), sbmt.ExtraKeys(1e9)),
    "link": ("bilinear", "poisson"),
}
ATTENTIONS = {
    "sbm": SBM,
    "sbm_static": SBM | {"n_positions": (130,)},
    "full": {},
    "linear": {},
    "linformer": {"n_positions": (130,), "n_projected": (1, 2, 9)},
    "reformer": {"n_chunk": (1, 2, 9), "n_hashes": (1, 3)},
    "performer": {"n_features": (1, 2, 9)},
    "nystromformer": {"n_landmarks": (1, 2, 9)},
    "random_mask": {"mask_density": (0.25, 0.0, 1.0, 1e-30)},
}
"""Maps every attention mechanism to the possible values of its settings."""


class Case:
    """A random case, which chooses its parts, draws tensors, and seeds torch's global generator."""

    def __init__(self, seed):
        self.seed, self._random = seed, random.Random(seed)
        torch.manual_seed(seed)

    def pick(self, choices):
        return self._random.choice(tuple(choices))

    def generator(self):
        return torch.Generator().manual_seed(self.seed)

    def mask(self, batch, n):
        """Returns a padding mask of ``batch`` examples of ``n`` tokens, True = real, or None to omit it."""
        masks = {
            "none": None,
            "ragged": torch.arange(n) < torch.randint(1, n + 1, (batch, 1)),
            "holes": torch.rand(batch, n) < 0.5,
            "one example": torch.arange(batch)[:, None].expand(batch, n) != self.seed % batch,
            "everything": torch.zeros(batch, n, dtype=torch.bool),
        }
        return masks[self.pick(masks)]

    def tokens(self, shape, mask, dtype, scale):
        """Returns normal numbers as a leaf, which may be strided in memory, with arbitrary values at padding."""
        x = (torch.randn(shape, dtype=torch.float64) * scale).to(dtype)
        if mask is not None:
            x = x.masked_fill(~mask[:, None, :, None], self.pick((0.0, math.nan, math.inf, 1e30)))
        layouts = {"plain": x, "transposed": x.mT.contiguous().mT, "strided": torch.stack([x, x], -1)[..., 0]}
        return layouts[self.pick(layouts)].requires_grad_(True)


def real_pairs(masks, shape):
    """Returns a mask of the pairs of real tokens, ``(batch, heads, n_queries, n_keys)``."""
    query, key = (torch.ones(shape[0], 1) > 0 if mask is None else mask for mask in masks)
    return (query[:, None, :, None] & key[:, None, None, :]).expand(shape)


def check_edge_attention(case):
    """Every backend agrees with float64 up to rounding, with zeros where nothing is attended."""
    batch, heads, n, m, d = map(case.pick, (SIZES, SIZES, LENGTHS, LENGTHS, SIZES))
    masks = case.mask(batch, n), case.mask(batch, m)
    shape, dtype = (batch, heads, n, m), case.pick(DTYPES)
    dense = (torch.rand(shape) < case.pick((0.3, 0.0, 1.0, 0.01))) & real_pairs(masks, shape)
    edges, scale = EdgeList.from_dense(dense, *masks), case.pick((1.0, 0.0, 1e-30))
    leaves = [case.tokens((batch, heads, (n, m, m)[i], d), masks[i > 0], dtype, scale) for i in range(3)]
    gate = torch.rand(edges.n_edges, dtype=torch.promote_types(dtype, torch.float32)) + 0.5
    options = {"gate_rule": case.pick(("score", "weight")), "dropout": case.pick((0.0, 0.3))}
    incoming, results = torch.randn(batch, heads, n, d), []
    for backend in ("float64", *sbmt.available_backends(), "auto"):
        wide = [x.double() for x in (*leaves, gate)] if backend == "float64" else (*leaves, gate)
        options |= {"backend": "dense" if backend == "float64" else backend, "generator": case.generator()}
        out = edge_attention(*wide[:3], edges, wide[3], **options)
        results.append([out, *torch.autograd.grad((out * incoming).sum(), leaves)])
        assert (out[~dense.any(-1)] == 0).all()
        for mine, exact in zip(results[-1], results[0], strict=True):
            margin = 64 * torch.finfo(dtype).eps * (exact.abs().max() + 1)
            assert ((mine.double() - exact.double()).abs() <= margin).all(), backend


def check_attention(case):
    """Every attention has correct shapes, finite numbers and gradients, is reproducible, and ignores padding."""
    name = case.pick(ATTENTIONS)
    settings = {setting: case.pick(choices) for setting, choices in ATTENTIONS[name].items()}
    batch, heads, n, d = map(case.pick, (SIZES, SIZES, LENGTHS, SIZES))
    mask, dtype, scale = case.mask(batch, n), case.pick(DTYPES), case.pick((1.0, 1e-30, 1e4))
    leaves = [case.tokens((batch, heads, n, d), mask, dtype, scale) for _ in range(3)]
    layer = build_attention(name, d_head=d, n_heads=heads, **settings).to(dtype)

    def attend(tensors):
        torch.manual_seed(case.seed)
        return layer(*tensors, query_mask=mask, key_mask=mask, generator=case.generator(), return_edges=True)

    out = attend(leaves)
    edges, is_pair = out.edges.to_dense(), real_pairs((mask, mask), (batch, heads, n, n))
    assert out.values.shape == leaves[0].shape and out.values.dtype == dtype and not (edges & ~is_pair).any()
    assert (out.values[~edges.any(-1)] == 0).all() and ((out.density >= 0) & (out.density <= 1)).all()
    loss = out.values.square().sum() + out.expected_density.sum()
    gradients = torch.autograd.grad(loss, [*leaves, *layer.parameters()], allow_unused=True)
    assert all(x is None or x.isfinite().all() for x in (loss, *gradients))
    without_junk = [x if mask is None else x.masked_fill(~mask[:, None, :, None], 0.0) for x in leaves]
    torch.testing.assert_close(attend(without_junk).values, out.values)


X = torch.rand(2, 2, 5, 4, generator=Case(0).generator())
MODEL, EDGES = BlockModel(X, torch.full((2, 4, 4), 1 / 16), X), EdgeList.from_dense(X @ X.mT < 1)
CALLS = {
    BlockModel: dict(query_membership=X, block_matrix=MODEL.block_matrix, key_membership=X),
    EdgeList: dict(row_ptr=EDGES.row_ptr, keys=EDGES.keys, shape=EDGES.shape, check=True),
    sample_edges: dict(block_model=MODEL, sampler="exact", exploration=0.1),
    edge_attention: dict(query=X, key=X, value=X, edges=EDGES, gate_rule="score", dropout=0.1),
    sbmt.sbm_attention: dict(query=X, key=X, value=X, block_model=MODEL, window=2),
    build_attention: dict(name="sbm", d_head=4, n_heads=2, n_clusters=3, sampler="exact"),
}
"""Calls of public functions with valid arguments."""
INSTEAD = [None, True, 0, -1, 2.5, math.nan, math.inf, "", "sbm", 1 << 63, (), [], {}, int, torch.ones(2, 2, 5, 4)]
CHANGES = {
    "int64": lambda x: x.long(),
    "complex": lambda x: x.to(torch.complex64),
    "NaN": lambda x: x * math.nan if x.is_floating_point() else -1 - x.long(),
    "no first": lambda x: x[0],
    "one more": lambda x: x[None],
    "cut": lambda x: x[..., :-1],
    "empty": lambda x: x[:0],
    "meta": lambda x: x.to("meta"),
}


def check_mistake(case):
    """One argument of a public call is replaced; only SbmtError may be raised."""
    function = case.pick(CALLS)
    name, change = case.pick(CALLS[function]), case.pick(("replaced", *CHANGES))
    x = CALLS[function][name]
    if change == "replaced" and not isinstance(x, bool):  # Python itself does not accept a tensor as a bool
        x = case.pick(INSTEAD)
    elif isinstance(x, torch.Tensor):
        x = CHANGES[change](x)
    function(**CALLS[function] | {name: x})


GROUPS = {
    "attention along edges": (check_edge_attention, 3000),
    "attentions by name": (check_attention, 5000),
    "mistakes": (check_mistake, 2000),
}
"""Properties, as functions that raise an error if a case violates them, and the number of cases."""


def run_cases(name, n_cases):
    """Counts the cases that were answered, rejected with a proper error, or failed, which are printed."""
    found = Counter(answered=0, refused=0, failed=0)
    for seed in range(n_cases):
        try:
            GROUPS[name][0](Case(seed))
            found["answered"] += 1
        except Exception as error:  # any error of a property or of the code under test
            is_refused = name == "mistakes" and isinstance(error, SbmtError)
            found["refused" if is_refused else "failed"] += 1
            if not is_refused:
                print(f"{name}, case {seed}\n{traceback.format_exc()}", flush=True)
    return found


def main():
    groups = {name: run_cases(name, n_cases) for name, (_, n_cases) in GROUPS.items()}
    n_cases, n_failures = sum(x.total() for x in groups.values()), sum(x["failed"] for x in groups.values())
    print(f"{n_failures} of {n_cases:,} cases failed")
    result = {"n_cases": n_cases, "n_failures": n_failures, "groups": groups, "manifest": manifest()}
    write_json(Path(__file__).parents[2] / "results" / "faults.json", result)
    sys.exit(n_failures > 0)


if __name__ == "__main__":
    main()
