"""``sbmt sweep``: several attentions, penalties and seeds on one task or several, and a table of them."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError, choose
from sbmt.experiments.cli.options_from_config import attention_options, with_fields_of
from sbmt.experiments.cli.progress import run_with_bars
from sbmt.experiments.cli.tables import long_range_table, print_table
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.study import Study, Trial, summary
from sbmt.experiments.training.tasks import PAPER, REDUCED, LongRangeConfig
from sbmt.layers.registry import ATTENTIONS, options_of

DECIDED = ("task", "attention", "density_weight", "seed", "mask_density")
FITTED_ALONE = ("dense_steps", "edges_from", "edges_ramp")  # which other attentions would refuse


@with_fields_of(LongRangeConfig, without=(*DECIDED, *FITTED_ALONE))
def sweep(
    tasks: Annotated[list[str], typer.Argument(help="listops, text, retrieval, image, pathfinder")],
    attention: Annotated[list[str], typer.Option(help="may be given several times")] = ["sbm"],  # noqa: B006
    density_weight: Annotated[
        list[float], typer.Option(help="λ of attentions that infer a block model; may be given several times")
    ] = [0.0],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="runs of each")] = 1,
    reduced: Annotated[bool, typer.Option("--reduced", help="minutes on one core, instead of Table 7")] = False,
    output: Annotated[Path, typer.Option(help="folder of the runs and the numbers")] = Path("runs/sweep"),
    workers: Annotated[int, typer.Option(help="processes, each with one thread")] = 1,
    **overrides: Any,
) -> None:
    """Train several attentions on several seeds, and print mean ± deviation over seeds, and density.

    An option of an attention goes to every attention of the sweep that has it. A random mask has the density that the
    first attention with a block model reaches on the same seed, if there is one. What was interrupted is resumed.
    """
    names = attention_options()
    options = {name: overrides.pop(name) for name in list(overrides) if name in names}
    trials = sweep_trials(attention, density_weight, options)
    console = Console(markup=False)
    results = {}
    configs = {task: choose("task", task, REDUCED if reduced else PAPER).override(**overrides) for task in tasks}
    for config in configs.values():  # reports whatever is missing or wrong before the first run
        config.open_prepared()
        for trial in trials:
            config.override(**trial.settings)
    for task, config in configs.items():
        study = Study(task, task, config, trials, seeds)
        results[task] = summary(study, run_with_bars(console, study, output / task, workers))
        write_json(output / "result.json", results)
    print_table(console, long_range_table(results, "reduced" if reduced else "Table 7's settings"))
    console.print(f"Runs and numbers: {output}", highlight=False)


def sweep_trials(
    attentions: list[str], density_weights: list[float], options: Mapping[str, Any] | None = None
) -> tuple[Trial, ...]:
    """A trial for every attention, and for every λ where an attention infers a block model.

    Args:
        attentions: Their names.
        density_weights: The values of λ.
        options: Options by name, None where nothing was given; each goes to the attentions that have it.

    Raises:
        SbmtError: If an attention is unknown, λ is negative, or no attention has an option that was given.
    """
    attentions = list(dict.fromkeys(attentions))
    given = {name: value for name, value in (options or {}).items() if value is not None}
    known = {name: {field.name for field in fields(options_of(name))} for name in attentions}
    for option in given:
        if not any(option in names for names in known.values()):
            do = "leave it out, or add an attention with it"
            raise SbmtError(f"an option of {', '.join(attentions)}", option, do)
    weights = []
    for weight in dict.fromkeys(density_weights):
        if weight < 0:
            raise SbmtError("density_weight ≥ 0", weight, "0 switches the penalty off")
        written = f"{weight!r}".removesuffix(".0")  # in full, so that no two have one name
        ending, title = (f"-{written}", f", λ = {written}") if weight else ("", "")
        weights.append((ending, title, {"density_weight": weight}))
    inferring = [name for name in attentions if hasattr(ATTENTIONS[name], "block_model")]
    trials = []
    for name in attentions:
        settings = {"attention": name} | {option: x for option, x in given.items() if option in known[name]}
        if name in inferring:
            trials += [Trial(name + end, name + title, settings | more) for end, title, more in weights]
        elif "mask_density" in known[name] and inferring:
            reference = inferring[0]
            title = f"{name.replace('_', ' ')} of {reference}'s density"
            trials.append(Trial(name, title, settings, density_of=reference + weights[0][0]))
        else:
            trials.append(Trial(name, name, settings))
    return tuple(trials)
