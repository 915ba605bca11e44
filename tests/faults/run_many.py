"""Puts many degenerate inputs and mistakes through the public functions, and writes what came of them.

``python tests/faults/run_many.py --cases 10000 --json results/faults.json`` takes a few minutes on one core. Cases are
drawn from fixed seeds, so that they are the same each time. The exit code is 1 if a property failed anywhere.
"""

import argparse
import math
import os
import sys
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import sbmt
from sbmt import BlockModel, EdgeList, Encoder, SbmtError, build_attention, edge_attention, sample_edges
from sbmt.experiments.files import check_writable, write_json
from sbmt.experiments.training.run import manifest
from sbmt.graph.patterns import sliding_window

SIZES = (1, 2, 3, 5, 4, 7) * 4 + (0,)  # hypothesis shrinks towards the first
LENGTHS = (*SIZES, *(9, 66, 130) * 2)
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
PADDING = ("none", "all real", "ragged", "single", "holes", "one example", "everything")
LONGEST = 130  # positions of the attentions that have a table of them
SBM = {"n_clusters": (1, 2, 9), "sampler": ("exact", "bernoulli", "fastrg"), "gate_rule": ("score", "weight")}
SBM |= {
    "exploration": (0.01, 0.0, 0.999999, sbmt.ExtraKeys(1e-9), sbmt.ExtraKeys(1e9)),
    "link": ("bilinear", "poisson"),
}
ATTENTIONS = {
    "sbm": SBM,
    "full": {"is_log_scaled": (False, True)},
    "linear": {},
    "linformer": {"n_positions": (LONGEST,), "n_projected": (1, 2, 9)},
    "reformer": {"n_chunk": (1, 2, 9), "n_hashes": (1, 3)},
    "routing": {"n_centroids": (1, 2, 9)},
    "performer": {"n_features": (1, 2, 9)},
    "nystromformer": {"n_landmarks": (1, 2, 9)},
    "random_mask": {"mask_density": (0.25, 0.0, 1.0, 1e-30)},
}
"""Every attention by name, and what its settings may be."""


class Case:
    """Draws the parts of a case by name, so that a failing one prints as plain values; makes tensors of its seed."""

    def __init__(self, data):
        self._data = data
        self.seed = self.pick("seed", st.integers(0, 1 << 32))

    def pick(self, name, choices):
        strategy = choices if isinstance(choices, st.SearchStrategy) else st.sampled_from(choices)
        return self._data.draw(strategy, label=name)

    def shape(self):
        """Batch, heads, queries and keys; half of the time as many keys as queries."""
        batch, heads, n = self.pick("batch", SIZES), self.pick("heads", SIZES), self.pick("queries", LENGTHS)
        return batch, heads, n, n if self.pick("one length", st.booleans()) else self.pick("keys", LENGTHS)

    def generator(self, offset=0):
        return torch.Generator().manual_seed(self.seed + offset)

    def uniform(self, shape, offset=0):
        return torch.rand(shape, generator=self.generator(offset), dtype=torch.float64)

    def normal(self, shape, offset=0):
        return torch.randn(shape, generator=self.generator(offset), dtype=torch.float64)

    def mask(self, name, batch, n):
        """A padding mask of ``batch`` examples of ``n`` tokens, True = real; None where it is left out."""
        kind = self.pick(f"{name} padding", PADDING)
        lengths = torch.randint(1, n + 1, (batch, 1), generator=self.generator())
        mask = {
            "none": None,
            "ragged": torch.arange(n) < lengths,
            "single": torch.arange(n) == lengths - 1,
            "holes": self.uniform((batch, n)) < 0.5,
            "one example": torch.arange(batch)[:, None].expand(batch, n) != self.seed % batch,
            "everything": torch.zeros(batch, n, dtype=torch.bool),
        }
        return mask.get(kind, torch.ones(batch, n, dtype=torch.bool))

    def tokens(self, shape, mask, dtype, scale=1.0, offset=0):
        """Normal numbers as a leaf that may lie strided in memory, with junk at padding."""
        x = (self.normal(shape, offset) * scale).to(dtype)
        if mask is not None:
            x = x.masked_fill(~mask[:, None, :, None], self.pick("junk", (0.0, math.nan, math.inf, 1e30)))
        layouts = {"plain": x, "transposed": x.mT.contiguous().mT, "strided": torch.stack([x, x], -1)[..., 0]}
        return layouts[self.pick("layout", tuple(layouts))].requires_grad_(True)


def real_pairs(masks, shape):
    """Which pairs of tokens are real, ``(batch, heads, n_queries, n_keys)``."""
    query, key = (torch.ones(shape[0], 1) > 0 if m is None else m for m in masks)
    return (query[:, None, :, None] & key[:, None, None, :]).expand(shape)


def has_finite_gradients(loss, leaves):
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    found = torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True) if loss.requires_grad else []
    return all(bool(x.isfinite().all()) for x in (loss, *found) if x is not None)


def outcome(call, *arguments, **settings):
    """Makes a call; whatever comes back, nothing may be raised but SbmtError."""
    try:
        call(*arguments, **settings)
    except SbmtError as error:
        assert str(error).startswith("expected ")
        return "refused"
    return "answered"


def check_edge_attention(case):
    """From every backend what float64 gives, up to rounding, with zeros where nothing is attended."""
    shape, d = case.shape(), case.pick("d", SIZES)
    sizes = [(*shape[:2], n, d) for n in (shape[2], shape[3], shape[3])]
    if 0 in (*shape, d):
        return outcome(lambda: edge_attention(*map(torch.zeros, sizes), EdgeList.from_dense(torch.zeros(shape) > 0)))
    masks = case.mask("query", shape[0], shape[2]), case.mask("key", shape[0], shape[3])
    dense = (case.uniform(shape) < case.pick("density", (0.3, 0.0, 1.0, 0.01))) & real_pairs(masks, shape)
    edges, dtype = EdgeList.from_dense(dense, *masks), case.pick("dtype", DTYPES)
    scale, parts = case.pick("scale", (1.0, 0.0, 1e-30)), zip(sizes, (masks[0], masks[1], masks[1]), strict=True)
    leaves = [case.tokens(size, mask, dtype, scale, i) for i, (size, mask) in enumerate(parts)]
    gate = (case.uniform(edges.n_edges) + 0.5).to(torch.promote_types(dtype, torch.float32))
    options = {"gate_rule": case.pick("rule", ("score", "weight")), "dropout": case.pick("dropout", (0.0, 0.3))}
    incoming, results = case.normal(sizes[0], 9), []
    for backend in ("float64", *sbmt.available_backends(), "auto"):
        wide = [x.double() for x in (*leaves, gate)] if backend == "float64" else (*leaves, gate)
        options |= {"backend": "dense" if backend == "float64" else backend, "generator": case.generator()}
        out = edge_attention(*wide[:3], edges, wide[3], **options)
        results.append([out, *torch.autograd.grad((out * incoming).sum(), leaves)])
        assert (out[~dense.any(-1)] == 0).all()
        for mine, exact in zip(results[-1], results[0], strict=True):
            margin = 64 * torch.finfo(dtype).eps * (exact.abs().max() + 1)
            assert ((mine.double() - exact.double()).abs() <= margin).all(), backend
    return "answered"


def pick_attention(case):
    name = case.pick("attention", tuple(ATTENTIONS))
    return name, {setting: case.pick(setting, choices) for setting, choices in ATTENTIONS[name].items()}


def check_attention(case):
    """Every attention: shapes, finite numbers and gradients, one seed one answer, nothing read at padding."""
    (name, options), (batch, heads, n, _), d = pick_attention(case), case.shape(), case.pick("d", SIZES)
    size, dtype = (batch, heads, n, d), case.pick("dtype", DTYPES)
    if 0 in size:
        return outcome(lambda: build_attention(name, d_head=d, n_heads=heads, **options)(*[torch.zeros(size)] * 3))
    mask, scale = case.mask("token", batch, n), case.pick("scale", (1.0, 0.0, 1e-30, 1e4))
    leaves = [case.tokens(size, mask, dtype, scale, i) for i in range(3)]
    torch.manual_seed(case.seed)
    layer = build_attention(name, d_head=d, n_heads=heads, **options).to(dtype)

    def attend(tensors):
        torch.manual_seed(case.seed)
        return layer(*tensors, query_mask=mask, key_mask=mask, generator=case.generator(), return_edges=True)

    try:
        out = attend(leaves)
    except SbmtError as error:
        assert "edges to draw" in str(error)
        return "refused"
    edges, is_pair = out.edges.to_dense(), real_pairs((mask, mask), (batch, heads, n, n))
    assert out.values.shape == size and out.values.dtype == dtype and not (edges & ~is_pair).any()
    assert (out.values[~edges.any(-1)] == 0).all() and ((out.density >= 0) & (out.density <= 1)).all()
    for loss in (out.values.square().sum(), out.expected_density.sum()):
        assert has_finite_gradients(loss, [*leaves, *layer.parameters()])
    without_junk = [x if mask is None else x.masked_fill(~mask[:, None, :, None], 0.0) for x in leaves]
    torch.testing.assert_close(attend(without_junk).values, out.values)
    return "answered"


X = torch.rand(2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
MASK, IDS = torch.arange(5) < torch.tensor([[5], [3]]), torch.arange(10).view(2, 5)
MODEL, EDGES = BlockModel(X, torch.full((2, 4, 4), 1 / 16), X), EdgeList.from_dense(X @ X.mT < 1)
NETWORK = dict(vocab_size=11, max_length=6, d_model=8, d_hidden=6, n_heads=2, n_layers=1, dropout=0.0)
CALLS = {
    "BlockModel": (BlockModel, dict(query_membership=X, block_matrix=MODEL.block_matrix, key_membership=X)),
    "EdgeList": (EdgeList, dict(row_ptr=EDGES.row_ptr, keys=EDGES.keys, shape=EDGES.shape, check=True)),
    "from_dense": (EdgeList.from_dense, dict(mask=EDGES.to_dense(), query_mask=None, key_mask=None)),
    "sliding_window": (sliding_window, dict(shape=EDGES.shape, window=2)),
    "sample_edges": (sample_edges, dict(block_model=MODEL, sampler="exact", exploration=0.1)),
    "edge_attention": (edge_attention, dict(query=X, key=X, value=X, edges=EDGES, gate_rule="score", dropout=0.1)),
    "sbm_attention": (sbmt.sbm_attention, dict(query=X, key=X, value=X, block_model=MODEL, window=2)),
    "Encoder": (Encoder, NETWORK),
    "Encoder()": (Encoder(**NETWORK, n_clusters=3), dict(tokens=IDS, mask=MASK)),
    **{name: (build_attention, dict(name=name, d_head=4, n_heads=2) | {s: c[0] for s, c in choices.items()})
       for name, choices in ATTENTIONS.items()},
}  # fmt: skip
"""Public calls with arguments that are right."""
ANYTHING = {repr(x): x for x in (None, True, 0, -1, 2.5, math.nan, math.inf, "", "sbm", 1 << 63, (), [], {}, "✓", int)}
ANYTHING |= {"tensor": torch.ones(2, 2, 5, 4), "empty": torch.empty(0), "module": torch.nn.Linear(1, 1)}
CHANGES = {
    "of int64": lambda x: x.long(),
    "complex": lambda x: x.to(torch.complex64),
    "with NaN": lambda x: x * math.nan if x.is_floating_point() else -1 - x.long(),
    "without a dimension": lambda x: x[0],
    "with one more": lambda x: x[None],
    "cut at the end": lambda x: x[..., :-1],
    "empty": lambda x: x[:0],
    "on the meta device": lambda x: x.to("meta"),
    "as a list": lambda x: x.tolist(),
}


def check_mistake(case):
    """An argument of a public call becomes something else: nothing is raised but SbmtError."""
    function, arguments = CALLS[case.pick("call", tuple(CALLS))]
    name, what = case.pick("argument", tuple(arguments)), case.pick("becomes", (*ANYTHING, *CHANGES))
    x = arguments[name]
    if what in CHANGES:
        is_alone = name == "mask" and what == "on the meta device"  # no other tensor tells where it should be
        x = CHANGES[what](x) if isinstance(x, torch.Tensor) and not is_alone else x
    elif not (isinstance(x, bool) and what in ("tensor", "empty")):  # Python itself does not take these for a bool
        x = ANYTHING[what]
    return outcome(function, **arguments | {name: x})


GROUPS = {
    "attention along edges": (check_edge_attention, 0.3),
    "attentions by name": (check_attention, 0.5),
    "mistakes": (check_mistake, 0.2),
}
"""What must hold of a case, and the group's share of all cases.

A check raises where a property does not hold; otherwise it says "answered" or, of what must not be taken, "refused".
"""


def run_cases(name: str, n_cases: int) -> Counter[str]:
    """Runs cases of a group, the same each time; the first failure is shrunk and raised."""
    found = Counter[str]()

    @seed(0)
    @settings(max_examples=n_cases, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        found[GROUPS[name][0](Case(data))] += 1

    run()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="of all groups together")
    parser.add_argument("--json", type=Path, required=True, help="where the result goes")
    asked = parser.parse_args()
    check_writable(asked.json)
    groups, n_failures = {}, 0
    for name, (_, share) in GROUPS.items():
        n_cases, found = round(asked.cases * share), Counter[str]()
        try:
            found = run_cases(name, n_cases)
        except Exception:  # whatever a property, or the code under test, raises
            traceback.print_exc()  # with the case, which is at its end
            n_failures += 1
        groups[name] = {"n_cases": n_cases, **found}
        print(f"{name:<24}{n_cases:>8,} cases, {found['refused']:>7,} refused", flush=True)
    print(f"{n_failures} groups with failures")
    result = {"n_cases": asked.cases, "n_failures": n_failures, "groups": groups, "manifest": manifest()}
    write_json(asked.json, result)
    return 1 if n_failures else 0


if __name__ == "__main__":
    sys.exit(main())
