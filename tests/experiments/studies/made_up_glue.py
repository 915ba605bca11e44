"""Made-up results of pre-training and fine-tuning, as ``sbmt glue --json`` writes them."""

TITLES = {"full": "full attention", "sbm": "SBM and window", "sbm-loops": "SBM and self-loops"}
DENSITIES = {"full": 1.0, "sbm": 0.25, "sbm-loops": 0.125, "scratch": 1.0}


def run_of(trial, seed, task="", at=0):
    density = DENSITIES[trial]
    metrics = {"macro_f1": 0.501 + at / 100, "pipeline_f1": 0.611 + at / 100 + seed / 50}
    layers = [[density, density / 2], [density / 4, density / 4]]
    return {
        "trial": trial,
        "config": {"seed": seed, "length": 128, "batch_size": 32, "steps": 2105},
        "test": {"accuracy": 0.7 + at / 100 + seed / 100, "density": density, "densities": layers, "metrics": metrics},
        "interval": [0.65 + at / 100, 0.75 + at / 100],
        "chance": 0.509,
        "chance_metrics": {"macro_f1": 0.3374, "pipeline_f1": 0.6751},
        "n_test": 872,
        "seconds": 1234.5,
        "data": {"name": task, "n_train": 60614, "origin": "official"},
    }


def made_up_glue():
    """Pre-training, and two seeds of two tasks."""
    mlm = []
    for at, trial in enumerate(TITLES):
        run = run_of(trial, 0, "corpus-reduced")
        run["test"] |= {"loss": 5.0 + at / 8, "accuracy": 0.2 + at / 10, "metrics": {"perplexity": 150.0 + at}}
        mlm.append(run | {"frequencies": {"perplexity": 712.34, "accuracy": 0.0456}, "n_test": 400})
    found = {"mlm": {"titles": TITLES, "runs": mlm}}
    for task in ("sst2", "mnli"):
        titles = TITLES | {"scratch": "not pre-trained"}
        runs = [run_of(trial, seed, task, at) for seed in (0, 1) for at, trial in enumerate(titles)]
        found[task] = {"titles": titles, "runs": runs}
    return found
