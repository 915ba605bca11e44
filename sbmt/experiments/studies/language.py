"""Pre-training and fine-tuning of several attention mechanisms, as in the paper's Table 4."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.studies.study import Study, Trial, run_study, summary
from sbmt.experiments.training import tasks as settings_of
from sbmt.experiments.training.run import TOKENIZER, Run
from sbmt.experiments.training.tasks import GLUE_TASKS, PAPER_MLM, REDUCED_MLM

_TRIALS = (
    Trial("full", "full attention", {"attention": "full"}),
    Trial("full-long", "full attention, thrice the steps", {"attention": "full"}),
    Trial("sbm", "SBM and window"),
    Trial("random-equal", "random mask and window, SBM's density", {"attention": "random_mask"}, density_of="sbm"),
    Trial("window", "window alone", {"attention": "random_mask", "mask_density": 0.0}),
    Trial("sbm-loops", "SBM and self-loops, no window", {"window": 0}),
    Trial("linear", "linear attention", {"attention": "linear"}),
    Trial("nystromformer", "Nyströmformer", {"attention": "nystromformer"}),
)
TRIALS = {trial.name: trial for trial in _TRIALS}


def pretraining_study(names: Iterable[str] = tuple(TRIALS), *, is_reduced: bool = True) -> Study:
    """Returns a study with one masked language model for each of the named :data:`TRIALS`.

    The trial ``random-equal`` requires ``sbm``. ``is_reduced`` selects small networks, which train in minutes.
    """
    config = REDUCED_MLM if is_reduced else PAPER_MLM
    trials = {name: choose("trial", name, TRIALS) for name in names}
    if "random-equal" in trials and "sbm" not in trials:
        raise SbmtError("the trial sbm, whose density random-equal uses", ", ".join(trials), "add sbm")
    if long := trials.get("full-long"):
        trials["full-long"] = replace(long, settings=long.settings | {"steps": 3 * config.steps})
    return Study("mlm", "masked language model", config, tuple(trials.values()), 1)


def fine_tuning_study(
    task: str, pretraining: Study, folder: Path, *, n_seeds: int = 1, is_reduced: bool = True
) -> Study:
    """Returns a study that fine-tunes all models of a pre-training study, and one with random weights, on a task.

    The pre-training runs are in ``folder``. The seed determines the head's initial weights, data order and masks.
    """
    first = pretraining.config
    trials = []
    for trial in pretraining.trials:
        network = {name: value for name, value in trial.settings.items() if name not in settings_of.ANEW}
        trials.append(replace(trial, settings=network | {"pretrained": str(folder / f"{trial.name}-seed{first.seed}")}))
    start = trials[0].settings["pretrained"]
    tokenizer = str(Path(start) / TOKENIZER)  # shared by all runs
    anew = {"attention": "full", "pretrained": "", "tokenizer": tokenizer, "embedding_std": first.embedding_std}
    scratch = Trial("scratch", "full attention, not pre-trained", anew)
    config = settings_of.fine_tuning(task, start, first, is_reduced=is_reduced)
    return Study(task, GLUE[task].folder, config, (*trials, scratch), n_seeds)


def run_language_studies(
    names: Sequence[str],
    tasks: Sequence[str],
    folder: Path,
    *,
    n_seeds: int,
    is_reduced: bool,
    run: Callable[[Study, Path], list[tuple[str, Run]]] = run_study,
) -> dict[str, dict[str, Any]]:
    """Pre-trains and fine-tunes all trials, resuming interrupted runs and loading finished ones.

    ``run`` is the function that runs a study in a folder. Returns the summary of every study by name.
    """
    for task in tasks:
        choose("task", task, dict.fromkeys(GLUE_TASKS))
    pretraining = pretraining_study(names, is_reduced=is_reduced)
    pretraining.config.open_data()  # reports missing data before the first run
    options: dict[str, Any] = {"n_seeds": n_seeds, "is_reduced": is_reduced}
    studies = [pretraining, *(fine_tuning_study(task, pretraining, folder / "mlm", **options) for task in tasks)]
    return {study.name: summary(study, run(study, folder / study.name)) for study in studies}
