"""Measures how well sampled masks preserve the atom maps of RXNMapper's attention; writes ``results/reactions.json``.

RXNMapper is an ALBERT model for chemical reactions. Its package, which includes the weights, is not in the extras
because it requires an older Transformers; install it by ``pip install --no-deps rxnmapper==0.4.3``. Masks are fitted
for each seed, and tested on reactions with different substituents. Measurements are kept in ``runs/reactions``.
"""

import copy
from functools import partial
from math import log
from operator import eq
from statistics import mean
from typing import Any

from rich.progress import track
from torch import manual_seed, nn

import sbmt
from results.measure.atom_maps import encode, mapper, maps
from results.measure.common import difference, kept, run, write
from results.measure.smiles import REACTIONS, reactions
from sbmt.experiments.sparsification.compare import FULL, MaskedAttention, window, with_masks
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

FITTED_FOR, EDGES_PER_QUERY, SEEDS = 8, (2, 5, 12, 24), range(3)
STEPS, CLUSTERS, QUERIES, MEASURED_ON = 200, 256, 32, 4
LONGEST = 512  # maximum number of tokens
FITTED_TO, ASKED = 20, 6  # maximum number of reactions per template


def under_full_attention(sparse: nn.Module) -> nn.Module:
    """Returns a copy of the network whose masks contain all pairs."""
    full = copy.deepcopy(sparse)
    for layer in fitted_layers(sparse):
        full.set_submodule(layer, MaskedAttention(partial(window, LONGEST)))
    return full


def measure(seed: int) -> list[dict[str, Any]]:
    """Returns the share of identically mapped atoms per reaction, by number of edges per query and kind of mask.

    Masks are fitted only once, since scaling rates that are optimal for one c makes them optimal for another.
    """
    asked, others = reactions(1, ASKED), encode(reactions(0, FITTED_TO))
    tuned_on, cases = others[:MEASURED_ON], []
    manual_seed(seed)
    sparse = sbmt.sparsify(mapper()[0], edges_per_query=float(FITTED_FOR), n_clusters=CLUSTERS)
    sbmt.fit_block_models(sparse, others[MEASURED_ON:], steps=STEPS, n_queries=QUERIES, n_measured=1)
    start = {name: layer.log_start.clone() for name, layer in fitted_layers(sparse).items()}
    full = maps(under_full_attention(sparse), asked)
    for c in EDGES_PER_QUERY:
        for name, layer in fitted_layers(sparse).items():
            layer.log_start.copy_(start[name] + log(c / FITTED_FOR))
        case: dict[str, Any] = {}
        for kind, masked in with_masks(mapper()[0], sparse, tuned_on):
            if kind != FULL:
                masks = {layer: masked.get_submodule(layer) for layer in start}
                density = measure_masks(sparse, tuned_on, masks).mean("density")
                pairs = zip(maps(masked, asked), full, strict=True)
                case[kind] = {"density": density, "items": [mean(map(eq, mine, wanted)) for mine, wanted in pairs]}
        cases.append(case)
    return cases


def main() -> None:
    """Measures all cases and writes the result file."""
    published = REACTIONS["published"]
    sparse = under_full_attention(sbmt.sparsify(mapper()[0], edges_per_query=1.0, n_clusters=CLUSTERS))
    found = maps(sparse, [reaction["smiles"] for reaction in published])
    right = {"n_published": len(published), "n_right": sum(map(eq, found, (one["map"] for one in published)))}
    seeds = [kept(f"reactions/seed{seed}.json", partial(measure, seed)) for seed in track(SEEDS, "reactions")]
    cases = []
    for c, *of_seeds in zip(EDGES_PER_QUERY, *seeds, strict=True):
        kinds = []
        for kind in of_seeds[0]:
            items = [seed[kind]["items"] for seed in of_seeds]
            mapped = difference(items, [[0.0] * len(shares) for shares in items])
            kinds.append({"kind": kind, "density": mean(seed[kind]["density"] for seed in of_seeds), "mapped": mapped})
        cases.append({"edges_per_query": c, "kinds": kinds})
    sizes = {"n_fitted": len(reactions(0, FITTED_TO)), "n_asked": len(reactions(1, ASKED)), "n_seeds": len(SEEDS)}
    write("reactions", sizes | right | {"cases": cases})


if __name__ == "__main__":
    run(main, "reactions")
