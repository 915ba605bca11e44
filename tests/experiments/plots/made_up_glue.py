"""Made-up results of pre-training and fine-tuning, in the layout of ``run_language_studies``."""

from sbmt.experiments.studies.language import DEFAULT, SCRATCH, TRIALS

DENSITIES = {"sbm": 0.21, "random-equal": 0.214, "window": 0.12, "sbm-loops": 0.08, "reformer": 0.6}


def _summary(name, title, trials, runs):
    return {"task": name, "study": name, "title": title, "titles": {t.name: t.title for t in trials}, "runs": runs}


def made_up_mlm(names=DEFAULT, *, alone=700.0):
    """One run per attention; perplexities rise from 150 by tens."""
    runs = [
        {
            "trial": name,
            "test": {"density": DENSITIES.get(name, 1.0), "metrics": {"perplexity": 150.0 + 10 * at}},
            "frequencies": {"perplexity": alone, "accuracy": 0.05},
            "n_test": 400,
            "config": {"seed": 0},
        }
        for at, name in enumerate(names)
    ]
    return _summary("mlm", "masked language model", [TRIALS[name] for name in names], runs)


def made_up_task(task, title, names=DEFAULT, *, n_seeds=2, chance=0.51):
    """Accuracies of 0.6 and more, with intervals of 0.03 to either side."""
    trials = [*(TRIALS[name] for name in names), SCRATCH]
    runs = [
        {
            "trial": trial.name,
            "test": {"density": DENSITIES.get(trial.name, 1.0), "accuracy": 0.6 + 0.02 * at + 0.01 * seed},
            "interval": [0.57 + 0.02 * at + 0.01 * seed, 0.63 + 0.02 * at + 0.01 * seed],
            "chance": chance,
            "n_test": 872,
            "config": {"seed": seed},
        }
        for seed in range(n_seeds)
        for at, trial in enumerate(trials)
    ]
    return _summary(task, title, trials, runs)


def made_up_results(names=DEFAULT, **settings):
    """Pre-training, then all four tasks."""
    tasks = {"sst2": "SST-2", "qqp": "QQP", "mnli": "MNLI", "qnli": "QNLI"}
    return {"mlm": made_up_mlm(names)} | {t: made_up_task(t, title, names, **settings) for t, title in tasks.items()}
