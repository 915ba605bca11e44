"""The command line. A user's mistake leads to a one-line message and exit code 2, never to a traceback."""

import sys
from typing import Annotated

import torch
import typer

import sbmt
from sbmt.command import run_command
from sbmt.experiments.cli.bench import bench, cost, sample
from sbmt.experiments.cli.data import data_app
from sbmt.experiments.cli.runs import evaluate, inspect, predict, sparsify
from sbmt.experiments.cli.study import demo, glue, study
from sbmt.experiments.cli.train import make_train_app
from sbmt.layers.registry import load_plugins


def print_version(is_asked: bool | None) -> None:
    """Prints the versions of sbmt and PyTorch, the device that training would use, and the attention backends."""
    if is_asked:
        device = f"cuda ({torch.cuda.get_device_name()})" if torch.cuda.is_available() else "cpu"
        typer.echo(f"sbmt {sbmt.__version__}\ntorch {torch.__version__}\ndevice {device}")
        typer.echo(f"backends {', '.join(sbmt.available_backends())}")
        raise typer.Exit


VERSION = typer.Option("--version", callback=print_version, is_eager=True, help="print versions and exit")


def options(version: Annotated[bool | None, VERSION] = None) -> None:
    """SBM-Transformer: attention restricted to edges sampled from an inferred block model."""


def make_app() -> typer.Typer:
    """Creates the application, with the options of all registered attention mechanisms."""
    names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(no_args_is_help=True, add_completion=False, context_settings=names)
    app.callback()(options)
    app.add_typer(data_app, name="data")
    app.add_typer(make_train_app(), name="train")
    for command in (demo, glue, evaluate, predict, inspect, sparsify, sample, study, bench, cost):
        app.command()(command)
    return app


app = make_app()


def main() -> None:
    """Imports the modules that ``SBMT_PLUGINS`` names, and runs the command line under the name ``sbmt``."""
    run_command(_run, "sbmt")


def _run() -> None:
    load_plugins()
    try:
        make_app()(prog_name="sbmt")
    except SystemExit as leaving:
        if leaving.code == 1:  # nothing reads the output any longer, as after | head
            raise BrokenPipeError from None
        if sys.stdout is not None:
            sys.stdout.flush()  # so that a full disk is reported
        raise
