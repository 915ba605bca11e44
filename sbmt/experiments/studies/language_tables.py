"""Tables of pre-training and fine-tuning, for the terminal and for pages."""

from statistics import mean, stdev
from typing import Any

from sbmt.experiments.data.glue.tasks import GLUE
from sbmt.experiments.studies.language import TABLE_4
from sbmt.experiments.tables import LEFT_OUT, Table
from sbmt.experiments.training.language import GLUE_TASKS

Results = dict[str, dict[str, Any]]
"""Of :func:`~sbmt.experiments.studies.language.run_language_studies`."""


def mlm_table(result: dict[str, Any]) -> Table:
    """Loss, perplexity, accuracy and density of every masked language model on test blocks."""
    rows = []
    for trial, title in result["titles"].items():
        for run in _runs(result, trial):
            test = run["test"]
            numbers = f"{test['loss']:.3f}", f"{test['metrics']['perplexity']:.1f}", f"{100 * test['accuracy']:.1f}"
            rows.append((title, *numbers, f"{100 * test['density']:.1f}", f"{run['seconds']:,.0f}"))
    run = result["runs"][0]
    alone = run["frequencies"]
    numbers = LEFT_OUT, f"{alone['perplexity']:.1f}", f"{100 * alone['accuracy']:.1f}"
    rows.append(("frequencies of tokens alone", *numbers, LEFT_OUT, LEFT_OUT))
    title = f"Guessing hidden tokens: {run['n_test']:,} test blocks, {run['config']['steps']:,} steps"
    headings = ("attention", "loss", "perplexity", "accuracy, %", "density, %", "seconds")
    return Table("glue-mlm", title, headings, tuple(rows))


def glue_accuracy_table(results: Results) -> Table:
    """Accuracy in percent, mean ± deviation over seeds, and density; and always answering the commonest label."""
    tasks, titles = _columns(results)
    rows = [
        (title, *(_cell(_runs(results[task], trial), lambda run: run["test"]["accuracy"]) for task in tasks))
        for trial, title in titles.items()
    ]
    rows.append(("always the commonest label", *(_constant(results, task, "accuracy") for task in tasks)))
    title = "Accuracy in %, mean ± deviation over seeds (density in %, if less than 100)"
    return Table("glue-accuracy", title, ("attention", *map(short_title, tasks)), tuple(rows))


def glue_f1_table(results: Results) -> Table:
    """The paper's Table 4, with the F1 of the pipeline that it uses: ours above, the paper's below."""
    tasks, titles = _columns(results)
    rows = [
        (title, *(_cell(_runs(results[task], trial), _pipeline_f1) for task in tasks))
        for trial, title in titles.items()
    ]
    rows.append(("always the commonest label", *(_constant(results, task, "pipeline_f1") for task in tasks)))
    places = [GLUE_TASKS.index(task) for task in tasks]
    rows += [(f"paper: {title}", *(f"{row[place]:.1f}" for place in places)) for title, row in TABLE_4.items()]
    title = "The pipeline's F1 in %, mean ± deviation over seeds (density), in the layout of the paper's Table 4"
    notes = ("The paper's rows are of models pre-trained on far more text: they are there for the layout, not to beat",)
    return Table("glue-f1", title, ("attention", *map(short_title, tasks)), tuple(rows), notes)


def glue_runs_table(results: Results) -> Table:
    """Every run of fine-tuning with the 95 % interval that its examples allow."""
    tasks, titles = _columns(results)
    rows = []
    for task in tasks:
        for trial, title in titles.items():
            for run in _runs(results[task], trial):
                low, high = run["interval"]
                metrics = (f"{run['test']['metrics'][name]:.3f}" for name in ("macro_f1", "pipeline_f1"))
                numbers = f"{run['test']['accuracy']:.3f}", f"{low:.3f} to {high:.3f}", *metrics
                more = f"{run['test']['density']:.3f}", f"{run['chance']:.3f}", f"{run['seconds']:,.0f}"
                rows.append((short_title(task), title, str(run["config"]["seed"]), *numbers, *more))
    headings = ("task", "attention", "seed", "accuracy", "95 % interval", "macro F1", "pipeline's F1", "density")
    return Table("glue-runs", "Every run of fine-tuning", (*headings, "commonest label", "seconds"), tuple(rows))


def glue_layers_table(results: Results, trials: tuple[str, ...] = ("sbm", "sbm-loops")) -> Table:
    """Density by layer, in percent: means over heads and seeds."""
    columns = [(name, trial) for name in results for trial in trials if _runs(results[name], trial)]
    layers = [_layers(_runs(results[name], trial)) for name, trial in columns]
    rows = [
        (short_title(name), results[name]["titles"][trial], *(f"{100 * layer:.1f}" for layer in mine))
        for (name, trial), mine in zip(columns, layers, strict=True)
    ]
    headings = ("task", "attention", *(f"layer {number}" for number in range(1, 1 + max(map(len, layers), default=0))))
    return Table("glue-layers", "Density by layer, in %, means over heads and seeds", headings, tuple(rows))


def glue_settings_table(results: Results) -> Table:
    """What was reduced, run by run."""
    rows = []
    for name, result in results.items():
        run = result["runs"][0]
        config, data = run["config"], run["data"]
        sizes = f"{data['n_train']:,}, {run['n_test']:,}"
        steps = f"{config['batch_size']}, {config['steps']:,}"
        rows.append((short_title(name), f"`{data['name']}`", str(config["length"]), steps, sizes, data["origin"]))
    headings = ("", "examples", "tokens at most", "batch, steps", "train, test examples", "origin")
    return Table("glue-settings", "Settings of these runs", headings, tuple(rows))


def short_title(task: str) -> str:
    """``SST-2`` for ``sst2``."""
    return GLUE[task].folder if task in GLUE else task.upper()


def _columns(results: Results) -> tuple[list[str], dict[str, str]]:
    tasks = [task for task in GLUE_TASKS if task in results]
    return tasks, {trial: title for task in tasks for trial, title in results[task]["titles"].items()}


def _runs(result: dict[str, Any], trial: str) -> list[dict[str, Any]]:
    return [run for run in result["runs"] if run["trial"] == trial]


def _layers(runs: list[dict[str, Any]]) -> list[float]:
    per_run = [[mean(heads) for heads in run["test"]["densities"]] for run in runs]
    return [mean(layer) for layer in zip(*per_run, strict=True)]


def _pipeline_f1(run: dict[str, Any]) -> float:
    return float(run["test"]["metrics"]["pipeline_f1"])


def _cell(runs: list[dict[str, Any]], number: Any) -> str:
    if not runs:
        return LEFT_OUT
    values = [100 * number(run) for run in runs]
    density = 100 * mean(run["test"]["density"] for run in runs)
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}" + (f" ({density:.1f})" if density < 100 else "")


def _constant(results: Results, task: str, metric: str) -> str:
    run = results[task]["runs"][0]
    return f"{100 * (run['chance'] if metric == 'accuracy' else run['chance_metrics'][metric]):.1f}"
