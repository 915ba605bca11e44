"""Pre-training and fine-tuning of several attentions, in the layout of the paper's Table 4."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.glue.tasks import GLUE
from sbmt.experiments.studies.study import Report, Study, Trial, run_study, summary
from sbmt.experiments.training.language import (
    ANEW,
    GLUE_TASKS,
    PAPER_MLM,
    REDUCED_MLM,
    TOKENIZER,
    epochs_of,
    fine_tuning,
    reduced_settings,
)

TRIALS = {
    trial.name: trial
    for trial in (
        Trial("full", "full attention", {"attention": "full"}),
        Trial("full-long", "full attention, thrice the steps", {"attention": "full"}),
        Trial("sbm", "SBM and window"),
        Trial("random-equal", "random mask and window, SBM's density", {"attention": "random_mask"}, density_of="sbm"),
        Trial("window", "window alone", {"attention": "random_mask", "mask_density": 0.0}),
        Trial("sbm-loops", "SBM and self-loops, no window", {"window": 0}),
        Trial("linear", "linear attention", {"attention": "linear"}),
        Trial("nystromformer", "Nyströmformer", {"attention": "nystromformer"}),
        Trial("reformer", "Reformer", {"attention": "reformer"}),
        Trial("performer", "Performer", {"attention": "performer"}),
        Trial("linformer", "Linformer", {"attention": "linformer"}),
    )
}
SCRATCH = Trial("scratch", "full attention, not pre-trained", {"attention": "full"})
DEFAULT = ("full", "full-long", "sbm", "random-equal", "window", "sbm-loops", "linear", "nystromformer")

TABLE_4 = {
    "full attention": (89.8, 84.7, 84.0, 85.0),
    "Reformer": (89.3, 84.4, 83.9, 84.0),
    "Performer": (82.0, 65.6, 71.4, 59.3),
    "Linformer": (82.0, 83.2, 79.3, 82.5),
    "Nyströmformer": (89.7, 83.2, 84.1, 84.9),
    "SBM and window, density 13.5": (89.8, 85.2, 83.5, 83.6),
}
"""The paper's Table 4: SST-2, QQP, MNLI, QNLI."""


def pretraining_study(names: Iterable[str] = DEFAULT, *, is_reduced: bool = True) -> Study:
    """One masked language model per attention.

    Args:
        names: Keys of :data:`TRIALS`; ``random-equal`` needs ``sbm``.
        is_reduced: Whether to take what one CPU core does in minutes instead of the paper's Table 7.

    Raises:
        SbmtError: If a name is unknown, or random masks have no density to equal.
    """
    config, names, trials = REDUCED_MLM if is_reduced else PAPER_MLM, tuple(names), []
    for name in dict.fromkeys(names):
        trial = choose("trial", name, TRIALS)
        if trial.density_of not in (None, *names):
            do = f"name {trial.density_of} too, or leave {name} out"
            raise SbmtError(f"the trial {trial.density_of}, whose density {name} takes", ", ".join(names), do)
        more = {"steps": 3 * config.steps} if name == "full-long" else {}
        trials.append(replace(trial, settings=trial.settings | more))
    return Study("mlm", "masked language model", config, tuple(trials), 1)


def fine_tuning_study(
    task: str,
    pretraining: Study,
    folder: Path,
    *,
    n_seeds: int = 1,
    epochs: int | None = None,
    is_reduced: bool = True,
) -> Study:
    """Every pre-trained model of a study on one task, and one that was not pre-trained.

    Args:
        task: ``sst2``, ``qqp``, ``mnli`` or ``qnli``.
        pretraining: Whose runs to start from.
        folder: Where those are.
        n_seeds: Runs of each. All start from the same weights; head, order of examples and masks differ.
        epochs: Passes over the examples; None takes the paper's number, or that of the reduced runs.
        is_reduced: Whether the examples are the subsets that the reduced runs use.
    """
    settings = reduced_settings(task) if is_reduced else {}
    first = pretraining.config
    trials = []
    for trial in pretraining.trials:
        network = {name: value for name, value in trial.settings.items() if name not in ANEW}
        start = {"pretrained": str(folder / f"{trial.name}-seed{first.seed}")}
        trials.append(replace(trial, settings=network | start))
    tokenizer = Path(trials[0].settings["pretrained"]) / TOKENIZER  # that of all
    anew = {"pretrained": "", "tokenizer": str(tokenizer), "embedding_std": first.embedding_std}
    scratch = replace(SCRATCH, settings=SCRATCH.settings | anew)
    config = fine_tuning(task, trials[0].settings["pretrained"], first, **settings)  # type: ignore[arg-type]
    config = epochs_of(config, len(config.open_prepared().splits["train"]), epochs, is_reduced=is_reduced)
    return Study(task, GLUE[task].folder, config, (*trials, scratch), n_seeds)


def run_language_studies(
    names: Sequence[str],
    tasks: Sequence[str],
    folder: Path,
    *,
    n_seeds: int,
    epochs: int | None = None,
    is_reduced: bool,
    n_workers: int = 1,
    report_of: Callable[[Study], AbstractContextManager[Report | None]] = lambda _: nullcontext(None),
) -> dict[str, dict[str, Any]]:
    """Pre-trains and fine-tunes; what was interrupted goes on, what is finished is loaded.

    Args:
        names: Keys of :data:`TRIALS`.
        tasks: Of :data:`~sbmt.experiments.training.language.GLUE_TASKS`.
        folder: Where all runs are kept.
        n_seeds: Runs of fine-tuning per attention and task.
        epochs: See :func:`fine_tuning_study`.
        is_reduced: See :func:`pretraining_study`.
        n_workers: Processes, each with one thread.
        report_of: Makes, for a study, a context that shows its progress.

    Returns:
        Summaries by name: ``mlm``, then the tasks.
    """
    for task in tasks:
        choose("task", task, dict.fromkeys(GLUE_TASKS))
    pretraining = pretraining_study(names, is_reduced=is_reduced)
    pretraining.config.open_data()  # whatever is missing shows before the first run
    studies = [pretraining] + [
        fine_tuning_study(task, pretraining, folder / "mlm", n_seeds=n_seeds, epochs=epochs, is_reduced=is_reduced)
        for task in tasks
    ]
    results = {}
    for study in studies:
        with report_of(study) as report:
            runs = run_study(study, folder / study.name, n_workers=n_workers, report=report)
        results[study.name] = summary(study, runs)
    return results
