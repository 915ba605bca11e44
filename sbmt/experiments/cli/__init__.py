"""The command line. Mistakes are answered in one line and exit code 2, never with a traceback."""

import typer

from sbmt.command import run_command
from sbmt.experiments.cli.bench import bench
from sbmt.experiments.cli.cost import cost
from sbmt.experiments.cli.data import data_app
from sbmt.experiments.cli.demo import demo
from sbmt.experiments.cli.glue import glue
from sbmt.experiments.cli.look import inspect, sample
from sbmt.experiments.cli.predict import predict
from sbmt.experiments.cli.study import study
from sbmt.experiments.cli.sweep import sweep
from sbmt.experiments.cli.train import evaluate, train_app

app = typer.Typer(
    help="SBM-Transformer: attention along edges sampled from an inferred block model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.add_typer(data_app, name="data")
app.add_typer(train_app, name="train")
app.command()(sweep)
app.command()(glue)
app.command()(evaluate)
app.command()(predict)
app.command()(inspect)
app.command()(sample)
app.command()(study)
app.command()(bench)
app.command()(cost)


def main() -> None:
    """Runs the command line."""
    run_command(app, "sbmt")
