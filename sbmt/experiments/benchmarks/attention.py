"""Suite ``attention``: one attention of one layer, forward and as a training step, against full attention."""

from dataclasses import dataclass, replace
from typing import Any

from sbmt.experiments.benchmarks.cases import KINDS, Case, Setting, build
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, FOREIGN, OURS, REFERENCE, entry, try_once
from sbmt.experiments.benchmarks.parts import take_apart
from sbmt.experiments.benchmarks.progress import OnCase, counted
from sbmt.experiments.benchmarks.timing import FEW_ROUNDS, Pace, Summary, race

DEGREE = 0.01 * 4096  # keys per query, the same for every n of a sweep


@dataclass(frozen=True)
class AttentionGrid:
    """What to measure, each with both kinds of input.

    Attributes:
        sizes: n at 41 keys per query.
        densities: Densities at ``n_fixed`` tokens.
        n_fixed: The n of ``densities`` and ``cluster_counts``.
        cluster_counts: k at 1 % density.
        targets: Single points (n, density).
        parts: Points (n, density) at which the training step is broken down into parts.
        contestants: Who takes part.
    """

    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    n_fixed: int
    cluster_counts: tuple[int, ...]
    targets: tuple[tuple[int, float], ...]
    parts: tuple[tuple[int, float], ...]
    contestants: tuple[str, ...] = tuple(CONTESTANTS)

    def sweeps(self) -> dict[str, list[Setting]]:
        """The settings of each sweep; sweeps may share settings."""
        k = 128
        points = {
            "target": [(n, density, k) for n, density in self.targets],
            "density": [(self.n_fixed, density, k) for density in self.densities],
            "n": [(n, DEGREE / n, k) for n in self.sizes],
            "clusters": [(self.n_fixed, 0.01, k) for k in self.cluster_counts],
        }
        return {
            name: [Setting(n, density, kind, k) for kind in KINDS for n, density, k in chosen]
            for name, chosen in points.items()
        }


FULL = AttentionGrid(
    sizes=(1024, 2048, 4096, 8192, 16384, 32768, 65536),
    densities=(0.0025, 0.01, 0.04, 0.16, 0.5),
    n_fixed=4096,
    cluster_counts=(32, 128, 256),
    targets=((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)),
    parts=((4096, 0.01), (4096, 0.04), (16384, 0.0025)),
)
QUICK = AttentionGrid(
    sizes=(1024, 4096),
    densities=(0.01, 0.16),
    n_fixed=4096,
    cluster_counts=(),
    targets=((4096, 0.01),),
    parts=((4096, 0.01),),
    contestants=tuple(name for name in CONTESTANTS if name != "flex"),  # compiling it takes longer than the rest
)


def run(grid: AttentionGrid, pace: Pace, on_case: OnCase) -> dict[str, Any]:
    """Measures every setting once and records to which sweeps it belongs."""
    sweeps = grid.sweeps()
    settings = list(dict.fromkeys(setting for chosen in sweeps.values() for setting in chosen))
    parts = [Setting(n, density, kind) for kind in KINDS for n, density in grid.parts]
    found: dict[str, Any] = {"cases": [], "parts": []}
    for setting in counted(settings, len(settings) + len(parts), on_case):
        case = build(setting)
        about = _about(case) | {"sweeps": [name for name, chosen in sweeps.items() if setting in chosen]}
        for is_training in (False, True):
            results = _compare(case, grid.contestants, is_training, pace)
            found["cases"].append(about | {"is_training": is_training, "results": results})
    for setting in counted(parts, len(settings) + len(parts), on_case, len(settings)):
        case = build(setting)
        found["parts"].append(_about(case) | {"results": take_apart(case, pace)})
    return found


def _compare(case: Case, names: tuple[str, ...], is_training: bool, pace: Pace) -> dict[str, Summary]:
    """A summary for each contestant that runs, and ``{"missing": why}`` for the others."""
    missing, entries = {}, {}
    for name in names:
        contestant = CONTESTANTS[name]
        why = contestant.why_not(case.setting, is_training)
        if why is None and name in FOREIGN:
            why = try_once(contestant, case, is_training)
        if why is None:
            entries[name] = entry(contestant, case, is_training)
        else:
            missing[name] = {"missing": why}
    if REFERENCE in entries:
        found = race(entries, pace, reference=REFERENCE, headline=(OURS,))
    else:  # there are times, but nothing to compare them with
        found = race(entries, replace(pace, least=FEW_ROUNDS), reference=OURS)
        found = {name: {x: y for x, y in one.items() if "ratio" not in x} for name, one in found.items()}
    return {name: found.get(name) or missing[name] for name in names}


def _about(case: Case) -> dict[str, Any]:
    """The setting as JSON holds it, with the density that was reached."""
    model = case.block_model()
    return {
        "kind": case.setting.kind,
        "n": case.setting.n,
        "density": case.setting.density,
        "n_clusters": case.setting.n_clusters,
        "n_heads": case.setting.n_heads,
        "d_head": case.setting.d_head,
        "expected_density": float(f"{model.expected_density().mean().item():.4g}"),
    }
