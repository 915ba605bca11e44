"""``sbmt sparsify``: fitted masks for a network that was trained with full attention."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.cli.evaluate import print_scores
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.files import write_json
from sbmt.experiments.locks import only_writer
from sbmt.experiments.tables import Table
from sbmt.experiments.training.run import load_run


def sparsify(
    run: Annotated[Path, typer.Argument(help="folder of a run trained with full attention")],
    edges_per_query: Annotated[float, typer.Option(help="edges that a query's attention is divided among")] = 16.0,
    steps: Annotated[int, typer.Option(help="steps of the fit")] = 300,
    clusters: Annotated[int, typer.Option(help="clusters per head")] = 1024,
    window: Annotated[int | None, typer.Option(help="also attend the tokens at most window / 2 places away")] = None,
    fine_tune: Annotated[int, typer.Option(help="steps of training the whole network under its masks afterwards")] = 0,
    output: Annotated[
        Path | None, typer.Option(help="folder of the run with fitted masks", show_default="RUN-fitted")
    ] = None,
    compare: Annotated[bool, typer.Option(help="whether to measure other masks with as many edges, too")] = True,
    examples: Annotated[int | None, typer.Option(help="test examples for that; the run's own if left out")] = None,
    json: Annotated[Path | None, typer.Option(help="also write the comparison here")] = None,
    figure: Annotated[Path | None, typer.Option(help="also draw it here")] = None,
) -> None:
    """Put fitted masks in the place of full attention, and compare them with other masks of equal size.

    All weights stay as they are, unless --fine-tune trains them further, under masks of every kind alike; the block
    models are fitted on the run's training examples. The result is a run as any other: sbmt evaluate and sbmt inspect
    read it.
    """
    check_sizes(steps=steps, clusters=clusters, **({} if examples is None else {"examples": examples}))
    if fine_tune < 0:
        raise SbmtError("fine_tune ≥ 0", fine_tune, "0 leaves all weights as they are")
    if not compare and (json is not None or figure is not None):
        raise SbmtError("--json and --figure with a comparison", "--no-compare", "leave one of them out")
    if figure is not None:
        from sbmt.experiments.plots.save import figure_format

        figure_format(figure)
    from sbmt.experiments.sparsification.compare import fit_run, tuned_run

    full = load_run(run)
    folder = output or run.with_name(f"{run.name}-fitted")
    if (folder / "config.json").exists():
        raise SbmtError("a folder without a run", folder, "name another with --output")
    console = Console(markup=False)
    with _without_subnormals(), only_writer(folder):
        with progress_bars(console) as progress:
            bar = progress.add_task("fit", total=steps)
            options: dict[str, Any] = {"n_clusters": clusters, "window": window}
            sparse = fit_run(
                full, edges_per_query, steps, lambda step, _: progress.update(bar, completed=step), **options
            )
            tuned = sparse
            if fine_tune:
                tuning = progress.add_task("fine-tuning", total=fine_tune)
                tuned = tuned_run(full, sparse, fine_tune, lambda step, _: progress.update(tuning, completed=step))
        tuned.save(folder)
    console.print(f"Full attention: accuracy {full.test.accuracy:.4f}")
    print_scores(console, tuned.test, tuned.about)
    if compare:
        paths = [path for path in (folder / "masks.json", json) if path]
        with _without_subnormals():
            _compare(console, full, sparse, examples, fine_tune, paths, figure)
    console.print(f"Run: {folder}", highlight=False)


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """Rates may be tiny, and arithmetic on subnormal numbers takes ten times as long as on zeros."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _compare(
    console: Console,
    full: Any,
    sparse: Any,
    examples: int | None,
    fine_tune: int,
    paths: list[Path],
    figure: Path | None,
) -> None:
    """Measures all kinds of masks, prints them, and writes what was asked for."""
    from sbmt.experiments.sparsification.compare import KINDS, compare, report

    with progress_bars(console) as progress:
        bar = progress.add_task("masks of other kinds", total=len(KINDS))
        found = compare(full, sparse, None, examples, lambda _: progress.advance(bar), fine_tune)
        result = report(full, [found], fine_tune)
    for path in paths:
        write_json(path, result)
    if figure is not None:
        from sbmt.experiments.plots.sparsification import draw_recall

        draw_recall([result], figure)
    print_table(console, masks_table(result["levels"][0]))


def masks_table(kinds: list[dict[str, Any]]) -> Table:
    """One row for each kind of mask."""
    rows = tuple(
        (
            kind["kind"],
            f"{kind['density']:.3f}",
            f"{kind['recall']:.3f}",
            f"{kind['error']:.2f}",
            f"{kind['effective_keys']:.1f}",
            f"{kind['accuracy']:.3f}",
            f"{kind['lost']:+.3f} ± {kind['lost_error']:.3f}",
        )
        for kind in kinds
    )
    title = (
        "Masks in all layers: share of pairs, of attention seen, error of the output, effective keys of a query, "
        "and what the task loses against full attention"
    )
    return Table("masks", title, ("masks", "pairs", "seen", "error", "keys", "accuracy", "lost"), rows)
