"""``sbmt sweep``: several attentions, penalties and seeds on one task or several, and a table of them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError, choose
from sbmt.experiments.cli.options import with_fields_of
from sbmt.experiments.cli.progress import study_progress
from sbmt.experiments.cli.tables import long_range_table
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.study import Study, Trial, run_study, summary
from sbmt.experiments.training.long_range import PAPER, REDUCED, LongRangeConfig
from sbmt.layers.registry import ATTENTIONS


@with_fields_of(LongRangeConfig, without=("task", "attention", "density_weight", "seed", "mask_density"))
def sweep(
    tasks: Annotated[list[str], typer.Argument(help="listops, text, retrieval, image, pathfinder")],
    attention: Annotated[list[str], typer.Option(help="may be given several times")] = ["sbm"],  # noqa: B006
    density_weight: Annotated[list[float], typer.Option(help="λ of sbm; may be given several times")] = [0.0],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="runs of each")] = 1,
    reduced: Annotated[bool, typer.Option("--reduced", help="minutes on one core, instead of Table 7")] = False,
    output: Annotated[Path, typer.Option(help="folder of the runs and the numbers")] = Path("runs/sweep"),
    workers: Annotated[int, typer.Option(help="processes, each with one thread")] = 1,
    **overrides: Any,
) -> None:
    """Train several attentions on several seeds, and print mean ± deviation over seeds, and density.

    A random mask has the density that sbm reaches on the same seed, if sbm is trained too. What was interrupted goes on
    where it stopped.
    """
    trials = sweep_trials(attention, density_weight)
    console = Console(markup=False)
    results = {}
    configs = {task: choose("task", task, REDUCED if reduced else PAPER).override(**overrides) for task in tasks}
    for config in configs.values():  # whatever is missing shows before the first run
        config.open_prepared()
    for task, config in configs.items():
        study = Study(task, task, config, trials, seeds)
        with study_progress(console, study) as report:
            runs = run_study(study, output / task, n_workers=workers, report=report)
        results[task] = summary(study, runs)
        write_json(output / "result.json", results)
    console.print(long_range_table(results, "reduced" if reduced else "Table 7's settings"))
    console.print(f"Runs and numbers: {output}", highlight=False)


def sweep_trials(attentions: list[str], density_weights: list[float]) -> tuple[Trial, ...]:
    """A trial for every attention, and of sbm one for every λ.

    Raises:
        SbmtError: If an attention is unknown or λ negative.
    """
    trials, sbms = [], []
    for weight in dict.fromkeys(density_weights):
        if weight < 0:
            raise SbmtError("density_weight ≥ 0", weight, "0 switches the penalty off")
        ending, title = (f"-{weight:g}", f", λ = {weight:g}") if weight else ("", "")
        sbms.append((ending, title, {"density_weight": weight}))
    for name in dict.fromkeys(attentions):
        choose("attention", name, ATTENTIONS)
        if name in ("sbm", "sbm_static"):
            trials += [Trial(name + end, name + title, {"attention": name} | more) for end, title, more in sbms]
        elif name == "random_mask" and "sbm" in attentions:
            trials.append(Trial(name, "random mask of sbm's density", {"attention": name}, f"sbm{sbms[0][0]}"))
        else:
            trials.append(Trial(name, name, {"attention": name}))
    return tuple(trials)
