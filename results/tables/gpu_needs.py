"""What the page on benchmarks says of the kernels' needs, which are counted without a GPU: from ``gpu_needs.json``.

A processor of compute capability 9.0 begins 128 threads' instructions in a clock and does 4,096 additions and
multiplications of 16-bit matrices; a kernel takes the clocks of whichever takes longer, or more.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from results.tables.references import Results

INSTRUCTIONS, PRODUCTS = 128, 4096  # of one processor, per clock
USUAL, HEADS = 128, 8
TITLES = {
    "attend_tiles": "tiles, forward",
    "differentiate_queries": "tiles, backward by queries",
    "differentiate_keys": "tiles, backward by keys",
    "skip": "rows, drawing",
    "attend": "rows, forward",
    "attend_backward": "rows, backward",
    "sum_along": "rows, gradients",
}
Kernel = dict[str, Any]


def gpu_needs_blocks(results: Results) -> dict[str, str]:
    """The tables, by the names that the markers call, or what makes them."""
    if not results.has("gpu_needs"):
        names = "gpu-kernels", "gpu-bounds", "gpu-needs-memory", "gpu-needs-machine"
        return dict.fromkeys(names, "*Not counted yet: run `python results/measure_gpu_needs.py`.*")
    found = results.load("gpu_needs")
    return {
        "gpu-kernels": _kernels(found),
        "gpu-bounds": _bounds(found),
        "gpu-needs-memory": _memory(found["memory"]),
        "gpu-needs-machine": f"Counted with torch {found['torch']} and triton {found['triton']}.",
    }


def clocks(kernels: Iterable[Kernel]) -> float:
    """The least that a processor takes for one pair, or one edge, one kernel after the other."""
    return sum(max(k["instructions"] / INSTRUCTIONS, k["products"] / PRODUCTS) for k in kernels)


def bounds(found: dict[str, Any], n_clusters: int) -> Iterator[tuple[str, float, float, float]]:
    """Forward and for a training step: the least clocks of full attention, of a pair of tiles, of an edge of a row."""
    for name, ways, products in (
        ("forward", (False,), 4 * found["d"]),
        ("training step", (False, True), 14 * found["d"]),
    ):
        chosen = [k for k in _of(found, n_clusters) if k["is_training"] in ways]
        pair, edge = (clocks(k for k in chosen if k["way"] == way) for way in ("tiled", "sparse"))
        yield name, products / PRODUCTS, pair, edge


def _kernels(found: dict[str, Any]) -> str:
    rows = ["| per pair or edge | instructions | matrix operations | clocks, at least | registers | spilled, bytes |"]
    rows.append("| --- " + "| ---: " * 5 + "|")
    for k in _of(found, USUAL):
        cells = (f"{k['instructions']:.0f}", f"{k['products']:,.0f}" if k["products"] else "–", f"{clocks([k]):.3g}")
        name, _, whose = k["kernel"].partition(" ")
        title = f"{TITLES[name]} {whose}".strip()
        rows.append(f"| {title} | {' | '.join(cells)} | {k['registers']} | {k['spilled']} |")
    return "\n".join(rows)


def _bounds(found: dict[str, Any]) -> str:
    head = ["k", "clocks, at least", "full attention", "a pair", "of full", "an edge", "rows pay below"]
    rows = [f"| {' | '.join(head)} |", "| ---: | --- " + "| ---: " * 5 + "|"]
    for n_clusters in sorted({k["n_clusters"] for k in found["kernels"]}):
        for name, full, pair, edge in bounds(found, n_clusters):
            cells = f"{full:.3f} | {pair:.3f} | {pair / full:.1f} × | {edge:.1f} | {100 * pair / edge:.1f} %"
            rows.append(f"| {n_clusters} | {name} | {cells} |")
    return "\n".join(rows)


def _memory(memory: dict[str, Any]) -> str:
    rows = [f"| training step, {memory['n']:,} tokens | one head | {HEADS} heads |", "| --- | ---: | ---: |"]
    named = {"tiles, any density": memory["tiled"]}
    named |= {f"rows, {100 * float(density):g} % of pairs": most for density, most in memory["sparse"].items()}
    for name, most in named.items():
        rows.append(f"| {name} | {most / 2**30:.2f} GiB | {HEADS * most / 2**30:.1f} GiB |")
    return "\n".join(rows)


def _of(found: dict[str, Any], n_clusters: int) -> list[Kernel]:
    return [kernel for kernel in found["kernels"] if kernel["n_clusters"] == n_clusters]
