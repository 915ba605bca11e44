"""Fitted masks in a network, beside every other kind of mask of the same density."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.experiments.sparsification.masks import CONTROLS, Control
from sbmt.experiments.tables import Table
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.fit import MaskQuality, measure_masks, seen_heads

FULL, FITTED = "full attention", "fitted"
KINDS = FITTED, *CONTROLS

OnStep = Callable[..., None]
Bar = Callable[[str, int], OnStep]  # starts a bar of so many steps; its result is called after each
Found = tuple[Callable[[Path], None], dict[str, Any], Table]  # a function that saves the network; comparison; table


def with_masks(
    model: nn.Module,
    sparse: nn.Module,
    tuned_on: Sequence[Any],
    density: float | None = None,
    others: Mapping[str, Control] = CONTROLS,
) -> Iterator[tuple[str, nn.Module]]:
    """The network itself, with its fitted masks, and with other kinds of mask of that density, by name.

    Without a density it is that of fitted masks on ``tuned_on``, the batches that the others are tuned on.
    """
    yield FULL, model
    yield FITTED, sparse
    density = density or measure_masks(sparse, tuned_on).mean("density")
    seen = [seen_heads(sparse, batch) for batch in tuned_on]
    for name, make in others.items():
        other = copy.deepcopy(sparse)
        for layer in fitted_layers(sparse):
            other.set_submodule(layer, make([heads[layer] for heads in seen], density))
        yield name, other


def compare(
    model: nn.Module,
    sparse: nn.Module,
    tuned_on: Sequence[Any],
    name: str,
    score: Callable[[nn.Module], Tensor],
    on_kind: OnStep = lambda: None,
) -> list[dict[str, Any]]:
    """A row for each kind of mask: its quality on the batches that its density is tuned on, and what it costs.

    ``score`` gives a number for each test item under a network. A row has its mean under that ``name``, and the mean
    that is lost compared with full attention, with its standard error over items.
    """
    rows = []
    for kind, masked in with_masks(model, sparse, tuned_on):
        scores = score(masked).double()
        if kind == FULL:
            full = scores
            if len(full) < 2:
                raise SbmtError("at least 2 test items to compare masks on", len(full), "ask for more with --examples")
            continue
        masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)}
        quality = measure_masks(sparse, tuned_on, masks)
        lost = full - scores
        row: dict[str, Any] = {"kind": kind, **{field.name: quality.mean(field.name) for field in fields(MaskQuality)}}
        row |= {name: float(scores.mean()), "lost": float(lost.mean())}
        rows.append(row | {"lost_error": float(lost.std() / len(lost) ** 0.5)})
        on_kind()
    return rows


def table(rows: Sequence[dict[str, Any]], name: str, note: str) -> Table:
    """A comparison as text."""
    cells = []
    for row in rows:
        numbers = f"{row['density']:.1%}", f"{row['attention_mass']:.3f}", f"{row['error']:.2f}"
        lost = f"{row['lost']:+.3f} ± {row['lost_error']:.3f}"
        cells.append((row["kind"], *numbers, f"{row['effective_keys']:.1f}", f"{row[name]:.3f}", lost))
    title = "Masks in all layers: share of pairs, of attention seen, error of the output, effective keys of a query"
    return Table("masks", title, ("masks", "pairs", "seen", "error", "keys", name, "lost"), tuple(cells), (note,))
