"""``sbmt sparsify``: fitted masks for a network that was trained with full attention."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress

import sbmt
from sbmt.errors import SbmtError, check_sizes, printable
from sbmt.experiments.cli.terminal import print_scores, print_table, progress_bars
from sbmt.experiments.files import check_writable, write_bytes, write_json
from sbmt.experiments.locks import only_writer
from sbmt.experiments.tables import Table
from sbmt.experiments.training.run import load_run, manifest

TITLE = (
    "Masks in all layers: share of pairs, of attention seen, error of the output, effective keys of a query, "
    "and what the task loses against full attention"
)
MOST_ASKED = 128
"""Texts whose embeddings are compared, unless told otherwise; a quarter of all at most."""


@contextmanager
def _without_subnormals() -> Iterator[None]:
    """Rates may be tiny, and arithmetic on subnormal numbers takes ten times as long as on zeros."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@_without_subnormals()
def sparsify(
    run: Annotated[
        Path, typer.Argument(help="folder of a run trained with full attention, or of a model of Transformers")
    ],
    text: Annotated[
        Path | None, typer.Option(help="texts for a model of Transformers to be fitted and compared on, one a line")
    ] = None,
    edges_per_query: Annotated[float, typer.Option(help="edges that a query's attention is divided among")] = 16.0,
    steps: Annotated[int, typer.Option(help="steps of the fit")] = 300,
    clusters: Annotated[int, typer.Option(help="clusters per head")] = 1024,
    window: Annotated[int | None, typer.Option(help="also attend the tokens at most window / 2 places away")] = None,
    fine_tune: Annotated[int, typer.Option(help="steps of training the whole network under its masks afterwards")] = 0,
    output: Annotated[Path | None, typer.Option(help="folder of what is made", show_default="RUN-fitted")] = None,
    compare: Annotated[bool, typer.Option(help="whether to measure other masks with as many edges, too")] = True,
    examples: Annotated[int | None, typer.Option(help="test examples for that; the run's own if left out")] = None,
    length: Annotated[int, typer.Option(help="tokens after which a text is cut off")] = 256,
    json: Annotated[Path | None, typer.Option(help="also write the comparison here")] = None,
) -> None:
    """Put fitted masks in the place of full attention, and compare them with other masks of equal size.

    All weights stay as they are, unless --fine-tune trains them further, under masks of every kind alike; the block
    models are fitted on the run's training examples. The result is a run as any other: sbmt evaluate and sbmt inspect
    read it. If the comparison is interrupted, the same command takes it up again.

    Given --text, RUN is the folder of an encoder of Hugging Face Transformers. How close its embeddings of texts stay
    to those of full attention is compared, and the result is a folder that sbmt.sparsification.load_sparsified reads,
    with the comparison in masks.json, masks.md and masks.png.
    """
    from sbmt.experiments.sparsification.compare import finished_run, fit_run, n_compared, tuned_run

    check_sizes(steps=steps, clusters=clusters, length=length, **({} if examples is None else {"examples": examples}))
    if fine_tune < 0:
        raise SbmtError("fine_tune ≥ 0", fine_tune, "0 leaves all weights as they are")
    if not compare and json is not None:
        raise SbmtError("--json with a comparison", "--no-compare", "leave one of them out")
    check_writable(json)
    options: dict[str, Any]
    if text is not None:
        if fine_tune or not compare:
            raise SbmtError("a run with --fine-tune or --no-compare", f"--text {text}", "leave them out")
        options = {"n_clusters": clusters, "window": window, "edges_per_query": edges_per_query}
        _sparsify_encoder(run, text, steps, length, examples, output, json, options)
        return
    if (run / "tokenizer_config.json").exists():
        raise SbmtError("--text FILE with a model of Transformers", "none", "name a file of texts, one a line")
    full = load_run(run)
    if compare:
        n_compared(full, examples)
    run = run if run.name not in ("", "..") else run.resolve()  # "." has no name of its own
    folder = output or run.with_name(f"{run.name}-fitted")
    masks = folder / "masks.json"
    options = {"n_clusters": clusters, "window": window}
    before = finished_run(folder, full, edges_per_query, steps, fine_tune, **options)
    if before is not None and (masks.exists() or not compare):
        raise SbmtError("a folder without a run", folder, "name another with --output")
    console = Console(markup=False)
    with only_writer(folder), progress_bars(console) as progress:
        check_writable(masks)
        sparse = before
        if sparse is None or fine_tune:  # a run that was fine-tuned has lost the masks that are compared
            sparse = fit_run(full, edges_per_query, steps, _bar(progress, "fit", steps), **options)
        tuned = before or sparse
        if before is None and fine_tune:
            tuned = tuned_run(full, sparse, fine_tune, _bar(progress, "fine-tuning", fine_tune))
        if before is None:
            tuned.save(folder)
    console.print(f"Full attention: accuracy {full.test.accuracy:.4f}")
    print_scores(console, tuned.test, tuned.about)
    if compare:
        result = _compare(console, full, sparse, examples, fine_tune)
        for path in filter(None, (masks, json)):
            write_json(path, result)
    console.print(f"Run: {printable(folder)}", highlight=False)


def _sparsify_encoder(
    folder: Path,
    text: Path,
    steps: int,
    length: int,
    examples: int | None,
    output: Path | None,
    json: Path | None,
    options: dict[str, Any],
) -> None:
    """Fits masks to an encoder of Transformers, compares them, and writes the model with tables and a figure."""
    from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
    from sbmt.experiments.sparsification.pretrained import (
        MEASURED_ON,
        OTHERS,
        compare_encoder,
        load_encoder,
        read_texts,
        tokenize,
    )

    texts = read_texts(text)
    output = output or Path(f"{folder.resolve().name}-fitted")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SbmtError("a new or empty folder", output, "name another with --output")
    n_asked = min(examples or MOST_ASKED, len(texts) // 4)
    if n_asked < 2:
        raise SbmtError("at least 2 texts to compare masks on", n_asked, "ask for more with --examples")
    model, tokenizer = load_encoder(folder)
    asked, *others = (tokenize(tokenizer, part, length) for part in (texts[:n_asked], texts[n_asked:]))
    tuned_on, fitted_on = others[0][:MEASURED_ON], others[0][MEASURED_ON:]
    console = Console(markup=False)
    with only_writer(output), progress_bars(console) as progress:
        torch.manual_seed(0)
        sparse = sbmt.sparsify(model, **options)
        sbmt.fit_block_models(sparse, fitted_on, steps=steps, n_measured=1, on_step=_bar(progress, "fit", steps))
        bar = progress.add_task("masks of other kinds", total=len(OTHERS) + 1)
        rows = compare_encoder(model, sparse, tuned_on, asked, lambda _: progress.advance(bar))
        result = {"model": folder.name, "texts": n_asked, "length": length, "steps": steps, "options": options}
        result |= {"kinds": rows, "manifest": manifest()}
        sparse.save_pretrained(output)
        tokenizer.save_pretrained(output)
        for path in filter(None, (output / "masks.json", json)):
            write_json(path, result)
        numbers = [(row["density"], row["attention_mass"], row["cosine"], row["cosine_error"]) for row in rows]
        cells = [(f"{d:.1%}", f"{mass:.3f}", f"{c:.3f} ± {error:.3f}") for d, mass, c, error in numbers]
        kinds = tuple((row["kind"], *cell) for row, cell in zip(rows, cells, strict=True))
        title = f"Masks in all heads of {folder.name}: cosine of {n_asked} embeddings to those of full attention"
        table = Table("masks", title, ("masks", "pairs", "seen", "cosine"), kinds)
        write_bytes(output / "masks.md", f"{table.markdown()}\n".encode())
        draw_encoder_masks({"": rows}, output / "masks.png")
    print_table(console, table)
    console.print(f"Model: {printable(output)}", highlight=False)


def _bar(progress: Progress, name: str, steps: int) -> Callable[[int, float], None]:
    """A new bar, to be called after every step."""
    bar = progress.add_task(name, total=steps)
    return lambda step, _: progress.update(bar, completed=step)


def _compare(console: Console, full: Any, sparse: Any, examples: int | None, fine_tune: int) -> dict[str, Any]:
    """Measures all kinds of masks, and prints a row for each."""
    from sbmt.experiments.sparsification.compare import KINDS, compare, report

    with progress_bars(console) as progress:
        bar = progress.add_task("masks of other kinds", total=len(KINDS))
        found = compare(full, sparse, None, examples, lambda _: progress.advance(bar), fine_tune)
        result = report(full, [found], fine_tune)
    rows = []
    for kind in result["levels"][0]:
        numbers = (f"{kind['density']:.3f}", f"{kind['attention_mass']:.3f}", f"{kind['error']:.2f}")
        lost = f"{kind['lost']:+.3f} ± {kind['lost_error']:.3f}"
        rows.append((kind["kind"], *numbers, f"{kind['effective_keys']:.1f}", f"{kind['accuracy']:.3f}", lost))
    headings = ("masks", "pairs", "seen", "error", "keys", "accuracy", "lost")
    print_table(console, Table("masks", TITLE, headings, tuple(rows)))
    return result
