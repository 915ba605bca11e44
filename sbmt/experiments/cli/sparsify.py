"""``sbmt sparsify``: fitted masks for a network that was trained with full attention."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import torch
import typer

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.cli.terminal import progress_bars, publish, say
from sbmt.experiments.files import check_not_replaced, check_writable
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.fit import check_unkept

MASKS = "masks.json"


def sparsify(
    run: Annotated[Path, typer.Argument(help="folder of a run with full attention, or of a model of Transformers")],
    text: Annotated[Path | None, typer.Option(help="for a model of Transformers: file with a text per line")] = None,
    edges_per_query: Annotated[float, typer.Option(help="largest mean number of edges per query")] = 16.0,
    steps: Annotated[int, typer.Option(help="steps of the fit")] = 300,
    clusters: Annotated[int, typer.Option(help="clusters per head")] = 1024,
    window: Annotated[int | None, typer.Option(help="also attend to tokens at most window / 2 positions away")] = None,
    output: Annotated[Path | None, typer.Option(help="output folder", show_default="RUN-fitted")] = None,
    examples: Annotated[int | None, typer.Option(help="test examples for the comparison; the run's by default")] = None,
    length: Annotated[int, typer.Option(help="number of tokens at which texts are truncated")] = 256,
    json: Annotated[Path | None, typer.Option(help="also write the comparison here")] = None,
) -> None:
    """Replace full attention by fitted masks, and compare them with other masks of equal size.

    The block models are fitted on the run's training examples. All other weights stay as they are. The result is a run,
    which sbmt evaluate and inspect read.

    With --text, RUN is the folder of a Hugging Face Transformers encoder. The command compares how close its embeddings
    stay to those of full attention; sbmt.sparsification.load_sparsified reads the output folder.
    """
    check_sizes(steps=steps, clusters=clusters, length=length)
    if examples is not None and examples < 2:
        raise SbmtError("at least 2 examples to compare masks on", examples, "ask for more with --examples")
    run = run if run.name not in ("", "..") else run.resolve()  # "." has no name
    folder = output or run.with_name(f"{run.name}-fitted")
    _check_new(folder)
    check_writable(folder / MASKS, json)
    check_not_replaced(text, json)
    options = {"edges_per_query": edges_per_query, "n_clusters": clusters, "window": window}
    with progress_bars() as progress, ExitStack() as afterwards:
        torch.set_flush_denormal(True)  # rates may be tiny, and subnormal numbers take ten times as long as zeros
        afterwards.callback(torch.set_flush_denormal, False)

        def bar(name: str, total: int) -> Callable[..., None]:
            task = progress.add_task(name, total=total)
            return lambda *_: progress.advance(task)

        if text is None:
            from sbmt.experiments.sparsification.trained import sparsify_run

            save, result, table = sparsify_run(run, examples, steps, options, bar)
        else:
            from sbmt.experiments.sparsification.pretrained import sparsify_encoder

            save, result, table = sparsify_encoder(run, text, length, examples, steps, options, bar)
    with only_writer(folder):
        _check_new(folder)
        save(folder)
        publish(result, [table], folder / MASKS, json)
    say(f"Made: {folder}")


def _check_new(folder: Path) -> None:
    if (folder / MASKS).exists():
        raise SbmtError("a new or empty folder", folder, "choose another with --output")
    check_unkept(folder, "choose another with --output")
