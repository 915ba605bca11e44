"""``sbmt evaluate``, ``predict`` and ``inspect``: the answers of a trained model and its masks."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from sbmt.errors import SbmtError, check_seed, printable
from sbmt.experiments.cli.terminal import check_targets, print_scores, print_table, say
from sbmt.experiments.data.glue import read_glue
from sbmt.experiments.files import check_not_replaced, write_bytes
from sbmt.experiments.tables import Table
from sbmt.experiments.training import evaluate as evaluate_run
from sbmt.experiments.training.evaluate import predict_labels, submission
from sbmt.experiments.training.generated import GeneratedConfig, RecallConfig, RepeatedTokensConfig
from sbmt.experiments.training.run import SHIPPED, Run, load_run, read_config
from sbmt.experiments.training.tasks import GlueConfig

Samples = Annotated[int, typer.Option(help="masks drawn per sequence; logits are averaged")]
Seed = Annotated[int, typer.Option(help="seed of the masks, and of generated sequences")]


def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    sequences: Annotated[int, typer.Option(help="test examples or blocks; newly generated for generated tasks")] = 1024,
    n_samples: Samples = 1,
    seed: Seed = 0,
    distractors: Annotated[int | None, typer.Option(help="recall: distractors; as in training by default")] = None,
) -> None:
    """Evaluate a run on unseen sequences."""
    loaded = load_run(run)
    if distractors is not None and not isinstance(loaded.config, RecallConfig):
        raise SbmtError("--distractors for a run of sbmt train recall", loaded.config.task, "leave it out")
    loaded = replace(loaded, config=loaded.config.override(n_distractors=distractors))
    scores = evaluate_run(loaded, sequences, n_samples=n_samples, seed=seed)
    print_scores(scores, {"n_test": scores.n_examples})


def predict(
    run: Annotated[Path, typer.Argument(help="folder of a run of sbmt train glue")],
    table: Annotated[Path, typer.Argument(help="its task's table without labels, such as GLUE's test.tsv")],
    output: Annotated[Path, typer.Option(help="output file of the answers")] = Path("predictions.tsv"),
    n_samples: Samples = 1,
    seed: Seed = 0,
) -> None:
    """Predict the labels of a table without labels, in the format that GLUE's server expects."""
    config = read_config(run)
    if not isinstance(config, GlueConfig):
        raise SbmtError("a run of sbmt train glue", run, "name another folder")
    check_targets(output)
    check_not_replaced(table, output)
    rows = read_glue(table, config.task, is_labelled=False)
    predicted = predict_labels(load_run(run), rows, n_samples=n_samples, seed=seed)
    write_bytes(output, submission(config.task, rows, predicted).encode())
    skipped = f"; {rows.n_skipped} rows too short to have an answer" if rows.n_skipped else ""
    say(f"{len(rows):,} answers: {output}{skipped}")


def inspect(
    run: Annotated[Path | None, typer.Argument(help="folder of a run; the included checkpoint by default")] = None,
    output: Annotated[Path, typer.Option(help="output file of the figure")] = Path("inspect.png"),
    examples: Annotated[int, typer.Option(help="prepared tasks: number of test examples to inspect")] = 256,
    query: Annotated[int | None, typer.Option(help="texts: position of the query whose keys are underlined")] = None,
    seed: Seed = 0,
) -> None:
    """Show the settings, the results and the masks of a trained model."""
    check_seed(seed)
    check_targets(figure=output)
    loaded = load_run(SHIPPED if run is None else run)
    config = loaded.config
    is_generated = isinstance(config, GeneratedConfig)
    if is_generated and (not isinstance(config, RepeatedTokensConfig) or config.fresh_values):
        got = f"one on {config.task.replace('_', ' ')}, whose masks have no order of tokens to be shown in"
        raise SbmtError("a run on prepared examples or on repeated tokens with fixed values", got, "use sbmt evaluate")
    if query is not None and (is_generated or config.is_image):
        raise SbmtError("--query only for a run on texts", config.task, "leave it out")
    _print_run("the shipped checkpoint" if run is None else printable(run), loaded)
    if is_generated:
        from sbmt.experiments.plots.repeated_tokens import draw_inspection

        draw_inspection(loaded, output, seed)
    else:
        from sbmt.experiments.plots.attended import draw_long_range_inspection, inspect_examples

        draw_long_range_inspection(inspect_examples(loaded, examples, seed=seed), output, query)
    say(f"Figure: {output}")


def _print_run(title: str, run: Run) -> None:
    """The settings that differ from the defaults, and the scores."""
    values = run.config.to_dict()
    values |= values.pop("options")
    defaults = {field.name: field.default for part in (run.config, run.config.options) for field in fields(part)}
    shown = {name: x for name, x in values.items() if x != defaults[name] or name in ("task", "attention")}
    rows = tuple((name, printable(value)) for name, value in shown.items())
    print_table(Table("settings", f"Settings of {title}", ("setting", "value"), rows))
    print_scores(run.test, run.about)
