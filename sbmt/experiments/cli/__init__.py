"""The command line. After a mistake it prints one line and exits with code 2; it never prints a traceback."""

import sys
from typing import Annotated

import torch
import typer

import sbmt
from sbmt.command import run_command
from sbmt.errors import SbmtError
from sbmt.experiments.cli.bench import bench
from sbmt.experiments.cli.cost import cost
from sbmt.experiments.cli.data import data_app
from sbmt.experiments.cli.demo import demo
from sbmt.experiments.cli.evaluate import evaluate
from sbmt.experiments.cli.glue import glue
from sbmt.experiments.cli.inspect import inspect
from sbmt.experiments.cli.predict import predict
from sbmt.experiments.cli.sample import sample
from sbmt.experiments.cli.sparsify import sparsify
from sbmt.experiments.cli.study import study
from sbmt.experiments.cli.sweep import sweep
from sbmt.experiments.cli.train import train_app
from sbmt.experiments.memory import keep_freed_memory
from sbmt.registration import load_plugins

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(is_asked: bool) -> bool:
    """Prints the version, PyTorch's, the device that training would use, and the attention backends."""
    if is_asked:
        device = f"cuda ({torch.cuda.get_device_name()})" if torch.cuda.is_available() else "cpu"
        typer.echo(f"sbmt {sbmt.__version__}")
        typer.echo(f"torch {torch.__version__}")
        typer.echo(f"device {device}")
        typer.echo(f"backends {', '.join(sbmt.available_backends())}")
        raise typer.Exit
    return is_asked


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="print versions and exit")
    ] = False,
) -> None:
    """SBM-Transformer: attention along edges sampled from an inferred block model."""


app.command()(demo)
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
app.command()(sweep)
app.command()(glue)
app.command()(evaluate)
app.command()(predict)
app.command()(inspect)
app.command()(sparsify)
app.command()(sample)
app.command()(study)
app.command()(bench)
app.command()(cost)


def main() -> None:
    """Imports the modules that ``SBMT_PLUGINS`` names, and runs the command line under the name ``sbmt``."""
    keep_freed_memory()
    run_command(_run, "sbmt")


def _run() -> None:
    for words in sys.argv[1:]:
        if not words or (words.startswith("--") and words.endswith("=")):  # such as --output "$FOLDER"
            raise SbmtError("words in every argument", f"an empty one ({words!r})", "leave it out, or say what it is")
    load_plugins()
    app(prog_name="sbmt")
