"""``sbmt sparsify``: fitted masks for a network that was trained with full attention."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import sbmt
from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.cli.terminal import progress_bars, publish, say
from sbmt.experiments.files import LOCK, check_writable, write_bytes
from sbmt.experiments.locks import only_writer
from sbmt.experiments.tables import Table
from sbmt.experiments.training.run import load_run, manifest

MOST_ASKED = 128
"""Texts whose embeddings are compared, unless told otherwise; a quarter of all at most."""
Bar = Callable[[str, int], Callable[..., None]]  # a new bar of that many steps, to be called after each
Found = tuple[Callable[[Path], None], dict[str, Any], Table]  # what saves the network, the comparison, and its table


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
    examples: Annotated[int | None, typer.Option(help="test examples to compare on; the run's own if left out")] = None,
    length: Annotated[int, typer.Option(help="tokens after which a text is cut off")] = 256,
    json: Annotated[Path | None, typer.Option(help="also write the comparison here")] = None,
) -> None:
    """Put fitted masks in the place of full attention, and compare them with other masks of equal size.

    All weights stay as they are, unless --fine-tune trains them further, under masks of every kind alike; the block
    models are fitted on the run's training examples. The result is a run as any other: sbmt evaluate and sbmt inspect
    read it.

    Given --text, RUN is the folder of an encoder of Hugging Face Transformers. How close its embeddings of texts stay
    to those of full attention is compared, and the result is a folder that sbmt.sparsification.load_sparsified reads,
    with the comparison in masks.json, masks.md and masks.png.
    """
    check_sizes(steps=steps, clusters=clusters, length=length, **({} if examples is None else {"examples": examples}))
    if fine_tune < 0 or (fine_tune and text):
        raise SbmtError("fine_tune ≥ 0, and 0 with --text", fine_tune, "0 leaves all weights as they are")
    run = run if run.name not in ("", "..") else run.resolve()  # "." has no name of its own
    folder = output or run.with_name(f"{run.name}-fitted")
    _check_new(folder)
    check_writable(folder / "masks.json", json)
    options = {"edges_per_query": edges_per_query, "n_clusters": clusters, "window": window}
    with progress_bars() as progress:

        def bar(name: str, total: int) -> Callable[..., None]:
            task = progress.add_task(name, total=total)
            return lambda *_: progress.advance(task)

        if text is None:
            save, result, table = _of_run(run, examples, steps, fine_tune, options, bar)
        else:
            save, result, table = _of_encoder(run, text, length, examples, steps, options, bar)
    with only_writer(folder):
        _check_new(folder)
        save(folder)
        publish(result, [table], folder / "masks.json", json)
    say(f"Made: {folder}")


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {LOCK}):
        raise SbmtError("a new or empty folder", folder, "name another with --output")


def _of_run(run: Path, examples: int | None, steps: int, fine_tune: int, options: dict[str, Any], bar: Bar) -> Found:
    """A run with fitted masks, beside every other kind of mask."""
    from sbmt.experiments.sparsification.compare import KINDS, compare, fit_run, n_compared, report, tuned_run

    if (run / "tokenizer_config.json").exists():
        raise SbmtError("--text FILE with a model of Transformers", "none", "name a file of texts, one a line")
    full = load_run(run)
    n_compared(full, examples)
    sparse = fit_run(full, steps=steps, on_step=bar("fit", steps), **options)
    tuned = tuned_run(full, sparse, fine_tune, bar("fine-tuning", fine_tune)) if fine_tune else sparse
    compared = compare(full, sparse, None, examples, bar("masks of other kinds", len(KINDS)), fine_tune)
    result = report(full, [compared], fine_tune)
    rows = []
    for kind in result["levels"][0]:
        numbers = (f"{kind['density']:.3f}", f"{kind['attention_mass']:.3f}", f"{kind['error']:.2f}")
        lost = f"{kind['lost']:+.3f} ± {kind['lost_error']:.3f}"
        rows.append((kind["kind"], *numbers, f"{kind['effective_keys']:.1f}", f"{kind['accuracy']:.3f}", lost))
    headings = ("masks", "pairs", "seen", "error", "keys", "accuracy", "lost")
    title = "Masks in all layers: share of pairs, of attention seen, error of the output, effective keys of a query"
    note = f"Full attention: accuracy {full.test.accuracy:.4f}"
    return tuned.save, result, Table("masks", title, headings, tuple(rows), (note,))


def _of_encoder(
    run: Path, text: Path, length: int, examples: int | None, steps: int, options: dict[str, Any], bar: Bar
) -> Found:
    """An encoder of Transformers with fitted masks, beside others; what saves it writes the table and a figure too."""
    from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
    from sbmt.experiments.sparsification import pretrained

    texts = pretrained.read_texts(text)
    n_asked = min(examples or MOST_ASKED, len(texts) // 4)
    if n_asked < 2:
        raise SbmtError("at least 2 texts to compare masks on", n_asked, "ask for more with --examples")
    model, tokenizer = pretrained.load_encoder(run)
    asked, others = (pretrained.tokenize(tokenizer, part, length) for part in (texts[:n_asked], texts[n_asked:]))
    tuned_on, fitted_on = others[: pretrained.MEASURED_ON], others[pretrained.MEASURED_ON :]
    torch.manual_seed(0)
    sparse = sbmt.sparsify(model, **options)
    sbmt.fit_block_models(sparse, fitted_on, steps=steps, n_measured=1, on_step=bar("fit", steps))
    advance = bar("masks of other kinds", len(pretrained.OTHERS) + 1)
    rows = pretrained.compare_encoder(model, sparse, tuned_on, asked, advance)
    numbers = [(row["density"], row["attention_mass"], row["cosine"], row["cosine_error"]) for row in rows]
    cells = [(f"{d:.1%}", f"{mass:.3f}", f"{c:.3f} ± {error:.3f}") for d, mass, c, error in numbers]
    kinds = tuple((row["kind"], *cell) for row, cell in zip(rows, cells, strict=True))
    title = f"Masks in all heads of {run.name}: cosine of {n_asked} embeddings to those of full attention"
    table = Table("masks", title, ("masks", "pairs", "seen", "cosine"), kinds)

    def save(folder: Path) -> None:
        sparse.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        write_bytes(folder / "masks.md", f"{table.markdown()}\n".encode())
        draw_encoder_masks({"": rows}, folder / "masks.png")

    result = {"model": run.name, "texts": n_asked, "length": length, "steps": steps, "options": options, "kinds": rows}
    return save, result | {"manifest": manifest()}, table
