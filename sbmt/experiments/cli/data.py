"""``sbmt data``: prepares the examples of the tasks, and lists the prepared ones."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import Progress
from rich.table import Table

from sbmt.errors import SbmtError, choose, printable
from sbmt.experiments.cli.terminal import print_table, say
from sbmt.experiments.data.corpus import REDUCED_VOCABULARY, VOCABULARY, corpus_source
from sbmt.experiments.data.locate import data_folder, prepared_folder
from sbmt.experiments.data.prepared import INFO, Prepared, open_prepared, prepare
from sbmt.experiments.data.source import TASKS
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import tell_os_errors

data_app = typer.Typer(help="Prepare the examples of the tasks.", no_args_is_help=True)


@data_app.command("prepare")
def prepare_task(
    task: Annotated[str, typer.Argument(help=f"{', '.join(TASKS[:-1])} or {TASKS[-1]}")],
    from_: Annotated[Path | None, typer.Option("--from", help="archive or folder that has the task's files")] = None,
    reduced: Annotated[bool, typer.Option("--reduced", help="make the small examples for reduced runs")] = False,
    vocab_size: Annotated[int | None, typer.Option(help="corpus: size of a new vocabulary; 50,265 by default")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="corpus: a tokenizer.json to use instead of a new one")] = None,
    name: Annotated[str | None, typer.Option(help="corpus: name of its folder; corpus by default")] = None,
) -> None:
    """Find or generate a task's examples, check them, and store them where training can read them.

    Without --from, ListOps and Pathfinder are generated, and other tasks are read from $SBMT_DATA. A corpus is any
    text, in one file or in a folder of files.
    """
    from sbmt.experiments.data.catalogue import find_source

    choose("task", task, dict.fromkeys(TASKS))
    n_given = sum(x is not None for x in (vocab_size, tokenizer))
    if n_given > 1 or (task != "corpus" and (n_given or name is not None)):
        raise SbmtError("--vocab-size, --tokenizer and --name are only for corpus; the first two exclude each other")
    if task == "corpus":
        size = (REDUCED_VOCABULARY if reduced else VOCABULARY) if vocab_size is None else vocab_size
        loaded = Tokenizer.load(tokenizer) if tokenizer else None
        folder = name if name is not None else "corpus-reduced" if reduced else "corpus"
        source = corpus_source(from_ or data_folder(), tokenizer=loaded, vocab_size=size, name=folder)
    else:
        source = find_source(task, from_, is_reduced=reduced)
    with Progress() as progress:
        bar = progress.add_task(source.name, total=None)
        prepared = prepare(source, prepared_folder(), report=lambda n: progress.update(bar, completed=n))
    _show(prepared)


@data_app.command("list")
def list_prepared() -> None:
    """List the prepared data and the folders that are searched."""
    say(f"Files are read from {data_folder()}")
    cache = prepared_folder()
    damaged = []
    for folder in sorted(path for path in (cache.iterdir() if cache.exists() else ()) if path.is_dir()):
        try:
            with tell_os_errors(f"read {folder}", "check its permissions"):
                if (folder / INFO).exists():  # missing while a task is being prepared
                    _show(open_prepared(folder, is_checked=False))
        except SbmtError as error:
            damaged.append(str(error))
    if damaged:
        raise SbmtError("; ".join(damaged))


def _show(prepared: Prepared) -> None:
    info = prepared.info
    title = f"{info['name']}: {info['origin']}, {info['n_documents']} document(s) per example"
    headings = "split", "examples", "share of each class", "length: median", "90 %", "longest"
    table = Table(*headings, title=printable(title))
    for name, split in prepared.splits.items():
        shares = np.bincount(split.labels, minlength=len(info["class_names"])) / len(split)
        lengths = np.quantile(split.lengths[split.indices], (0.5, 0.9, 1))
        classes = " ".join(f"{share:.2f}" for share in shares)
        table.add_row(name, f"{len(split):,}", classes, *(f"{x:,.0f}" for x in lengths))
    print_table(table)
    for line in (*info["notes"], f"Prepared in {prepared.folder}"):
        say(line)
