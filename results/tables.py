"""Tables of the pages, in Markdown, from the result files; templates call these functions."""

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from results.lookup import OURS_ON_GPU, cases, find, load, machines, reached, recalled, runs_of, show
from sbmt.experiments.benchmarks.tables import milliseconds, percent
from sbmt.experiments.costs import cost_tables
from sbmt.experiments.tables import LEFT_OUT

Result = dict[str, Any]


def grid(headings: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown.

    Example:
        >>> print(grid(("n", "time"), [(1, "2 s")]))
        | n | time |
        |---|---|
        | 1 | 2 s |
    """
    first = "".join(f" {heading} |" if heading != "" else " |" for heading in headings)
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in rows]
    return "\n".join([f"|{first}", "|---" * len(headings) + "|", *lines])


def _spread(values: Sequence[float], form: str = ".3f") -> str:
    """Median and range, or the median alone where the range is no wider."""
    middle, low, high = (f"{of(values):{form}}" for of in (median, min, max))
    return middle if low == high else f"{middle} ({low} to {high})"


# --- studies of repeated tokens ---

ESTIMATORS = {
    "score": "straight-through, `score` (equation 9)",
    "weight": "straight-through, `weight`",
    "removal": "straight-through, `removal`",
    "removal/q": "`removal` / q",
    "reinforce": "REINFORCE",
}
FIGURE_4 = {  # titles, and the trials with 256 and with 64 tokens
    "full attention": ("full", "full"),
    "SBM": ("sbm", "sbm"),
    "control: a random mask of equal density": ("", "random-equal"),
    "SBM without self-loops": ("no-loops", "no-loops"),
    "SBM, Algorithm 1": ("", "sbm-algorithm-1"),
    "linear": ("linear", "linear"),
    "Reformer": ("reformer", "reformer"),
    "Performer": ("performer", "performer"),
    "Linformer": ("linformer", "linformer"),
    "Nyströmformer": ("nystromformer", "nystromformer"),
}


def _over_tests(study: str, trial: str) -> list[str]:
    """Accuracy and density of a trial's runs, medians and ranges; dashes where there are none."""
    both = (reached(study, trial, metric) for metric in ("accuracy", "density"))
    return [_spread(found) if found else LEFT_OUT for found in both]


def study_table(name: str, *trials: str) -> str:
    """A row per trial (all of them unless some are named): seeds, and medians with ranges over the seeds."""
    titles = {trial: re.sub(r"(?<!\d)\.(?=\d)", "0.", title) for trial, title in load(name)["titles"].items()}
    rows = [(titles[trial], len(runs_of(name, trial)), *_over_tests(name, trial)) for trial in trials or titles]
    return grid(("", "seeds", "accuracy", "density"), rows)


def figure4_table() -> str:
    """A row per attention: accuracy and density on 256 and on 64 tokens."""
    rows = [
        (title, *_over_tests("figure4", long), *_over_tests("figure4-64", short))
        for title, (long, short) in FIGURE_4.items()
    ]
    return grid(("", "256 tokens: accuracy", "density", "64 tokens: accuracy", "density"), rows)


def estimators_table(probability: float) -> str:
    """A row per estimator: relative bias, relative variance and cosine, and the cosine with informed scores."""
    blind, aligned = (
        find(load("ste_bias")["parts"], scores=scores, exploration=0)["rows"]
        for scores in ("scores blind to use", "scores aligned with use")
    )
    rows = []
    for name, title in ESTIMATORS.items():
        one, other = (find(found, estimator=name, probability=probability) for found in (blind, aligned))
        form = ".2g" if one["relative_variance"] < 10 else ".0f"
        cells = f"{one['relative_bias']:.2f}", f"{one['relative_variance']:{form}}", f"{one['cosine']:.2f}"
        rows.append((title, *cells, show(other["cosine"], ".2f")))
    return grid(("", "bias", "variance", "cosine", "cosine, informed scores"), rows)


# --- fitted masks ---

SOUGHT = {  # tasks in which a mask has to find matching tokens
    "fitted-64": "repeated tokens, 64",
    "fitted-256": "repeated tokens, 256",
    "fitted-1024": "repeated tokens, 1,024",
    "fresh-64": "fresh values, 64",
    "fresh-256": "fresh values, 256",
    "twins": "crops of photographs, 64",
    "recall": "associative recall, 64",
}


def sought_table() -> str:
    """A row per task: accuracy and keys per query of a fitted mask and of Reformer, and the accuracy of other masks."""

    def cell(study: str, trial: str) -> str:
        accuracy, keys = (median(reached(study, trial, metric)) for metric in ("accuracy", "edges"))
        return f"{accuracy:.3f} ({keys:.1f})" if trial in ("fitted", "reformer") else f"{accuracy:.3f}"

    trials = {"fitted": "fitted (keys)", "full": "full", "random": "random", "window": "window", "reformer": "Reformer"}
    rows = [(title, *(cell(study, trial) for trial in trials)) for study, title in SOUGHT.items()]
    return grid(("task, tokens", *trials.values()), rows)


def fitted_cost_table() -> str:
    """A row per length: time of a whole training step and of the attention alone, relative to full attention."""
    steps, alone = (load("fitted_cost")[name] for name in ("lengths", "attention"))
    rows = []
    for n in dict.fromkeys([*steps, *alone]):
        step = f"{steps[n]['fitted']['ratio']:.1f} ×" if n in steps else LEFT_OUT
        layer = f"{alone[n]['fitted']['ratio']:.2f} ×" if n in alone else LEFT_OUT
        keys = f"{alone[n]['keys_per_query']:.1f}" if n in alone else LEFT_OUT
        rows.append((f"{int(n):,}", step, layer, keys))
    return grid(("tokens", "whole training step", "attention alone", "its keys per query"), rows)


def recall_table(*trials: str) -> str:
    """A row per trial, a column per length: accuracy / density, medians over seeds; last, the time of an answer."""
    evaluated, times = load("recall_lengths")["evaluated"], load("recall_lengths")["times"]
    titles, rows = load("recall")["titles"], []
    for trial in trials:
        mine = [run["lengths"] for run in evaluated if run["trial"] == trial]
        cells = []
        for n in times:
            found = [at[n] for at in mine if n in at]
            accuracy, density = (median(one[name] for one in found) for name in ("accuracy", "density"))
            cells.append(f"{accuracy:.3f}" if density == 1 else f"{accuracy:.3f} / {density:.3f}")
        rows.append((titles[trial], *cells))
    rows.append(("time of an answer, fitted over full", *(f"{at['fitted']['ratio']:.2f} ×" for at in times.values())))
    return grid(("", *(f"{int(n):,} tokens" for n in times)), rows)


# --- networks trained with full attention ---


def attention_seen_table() -> str:
    """A row per kind of mask, a column per network: attention seen / points lost; first, figures of full attention."""
    heads = {"Retrieval, topics": "Retrieval", "masked language model": "words"}  # so that the table fits the page
    networks = {heads.get(name, name): one for name, one in load("attention_mass")["networks"].items()}
    found = [one["levels"][one["shares"].index(0.05)] for one in networks.values()]
    effective = (
        f"{kinds[0]['attended_keys']:.0f}/{one['mean_keys']:.0f}"
        for kinds, one in zip(found, networks.values(), strict=True)
    )
    rows: list[Sequence[object]] = [
        ("*effective keys*", *effective),
        ("*full accuracy*", *(f"{one['full']['accuracy']:.3f}" for one in networks.values())),
    ]
    for kinds in zip(*found, strict=True):
        if kinds[0]["kind"] == "window and random":  # similar to both
            continue
        cells = (f"{100 * kind['attention_mass']:.0f} / {show(100 * kind['lost'], '.1f')}" for kind in kinds)
        rows.append((kinds[0]["kind"], *cells))
    worst = 100 * max(kind["lost_error"] for kinds in found for kind in kinds)
    table = grid(("seen / lost", *networks), rows)
    return table + f"\n\n*The standard error of a loss is at most {worst:.1f} points.*"


def pretrained_table(name: str = "pretrained", part: str = "cases", score: str = "found") -> str:
    """A row per kind of mask in a sentence encoder: pairs, cosine to full attention's embeddings, and score."""
    rows: list[tuple[object, ...]] = []
    for case in load(name)[part]:
        for kind in case["kinds"]:
            title = case.get("title") or f"c = {case['edges_per_query']}"
            low, high = (100 * kind["lost"][end] for end in ("low", "high"))
            lost = f"{show(low, '.1f')} to {show(high, '.1f')}" if kind["kind"] != "full attention" else LEFT_OUT
            numbers = f"{100 * kind['density']:.1f} %", f"{kind['cosine']['mean']:.3f}", f"{100 * kind['found']:.1f} %"
            rows.append((title if kind is case["kinds"][0] else "", kind["kind"], *numbers, lost))
    return grid(("", "masks", "pairs", "cosine", score, "points lost"), rows)


def reactions_table() -> str:
    """A row per kind of mask in RXNMapper: pairs, and product atoms mapped as under full attention."""
    rows: list[tuple[object, ...]] = []
    for case in load("reactions")["cases"]:
        for kind in case["kinds"]:
            share, low, high = (f"{100 * kind['mapped'][end]:.1f}" for end in ("mean", "low", "high"))
            title = f"c = {case['edges_per_query']}" if kind is case["kinds"][0] else ""
            rows.append((title, kind["kind"], f"{100 * kind['density']:.1f} %", f"{share} %", f"{low} to {high}"))
    return grid(("", "masks", "pairs", "atoms mapped alike", "interval"), rows)


def pretrained_time_table() -> str:
    """A row per length: milliseconds of one layer's attention in a sentence encoder, full and fitted."""
    rows = []
    for n, found in load("pretrained_time")["lengths"].items():
        full, fitted = (milliseconds(found[name]["median"]) for name in ("full", "fitted"))
        rows.append((f"{int(n):,}", f"{found['keys']:.0f}", full, fitted, f"{found['fitted']['ratio']:.2f} ×"))
    return grid(("tokens", "keys per query", "full attention, ms", "fitted, ms", "ratio"), rows)


# --- causal attention ---


def causal_recall_table(*lengths: int) -> str:
    """A row per attention, and for each length its accuracy and its keys per query, the token itself included."""
    rows = []
    for row in load("causal")["recall"]:
        found = [[recalled(n, row["trial"], name) for name in ("accuracy", "keys")] for n in lengths]
        cells = [(_spread(right), f"{median(keys):.1f}") if keys else (LEFT_OUT, LEFT_OUT) for right, keys in found]
        rows.append((row["title"], *(cell for both in cells for cell in both)))
    return grid(("", *(heading for n in lengths for heading in (f"{n:,} tokens", "keys"))), rows)


def causal_text_table() -> str:
    """A row per attention: keys per query, bits per byte, and the excess over full attention."""
    rows = []
    for row in load("causal")["text"]:
        keys, behind = mean(seed["keys"] for seed in row["seeds"]), row["behind"]
        interval = f"{show(behind['mean'], '.3f')} ({show(behind['low'], '.3f')} to {show(behind['high'], '.3f')})"
        more = LEFT_OUT if row["trial"] == "full" else interval
        rows.append((row["title"], f"{keys:.1f}", f"{mean(row['bits']):.3f}", more))
    return grid(("", "keys per query", "bits per byte", "more than full"), rows)


def causal_decode_table() -> str:
    """A column per length of the context: milliseconds per token, and their ratio."""
    decode = load("causal")["decode"]
    rows: list[tuple[object, ...]] = [
        (f"{name}, ms", *(f"{at[name]['median']:.1f}" for at in decode.values())) for name in ("full", "fitted")
    ]
    rows.append(("fitted over full", *(f"{at['fitted']['ratio']:.2f} ×" for at in decode.values())))
    return grid(("context", *(f"{int(n):,}" for n in decode)), rows)


# --- long-range and language tasks ---

TASKS = {
    "listops": "ListOps",
    "text": "Text",
    "retrieval-topics": "Retrieval, topics",
    "retrieval": "Retrieval, films",
    "image": "Image",
    "pathfinder": "Pathfinder",
}
LONG_RANGE_TRIALS = {
    "full": "full",
    "linear": "linear",
    "sbm": "SBM",
    "random-equal": "random",
    "sbm-0.1": "SBM, λ = 0.1",
}
EQUAL_EDGES = {"listops": (4, 2), "pathfinder": (4, 2)}
"""The edges per query that fitted masks were trained with, where these are not 8."""
LANGUAGE_TRIALS = {
    "full": "full",
    "full-long": "full, thrice the steps",
    "scratch": "full, not pre-trained",
    "sbm": "SBM and window",
    "random-equal": "random and window",
    "window": "window",
    "sbm-loops": "SBM, no window",
    "linear": "linear",
    "nystromformer": "Nyströmformer",
}
GLUE = {"sst2": "SST-2", "qqp": "QQP", "mnli": "MNLI", "qnli": "QNLI"}


def _points_of(study: str, trial: str) -> str:
    """Accuracy in percent, mean ± deviation over the seeds; a dash where nothing was trained."""
    accuracies = [100 * x for x in reached(study, trial)]
    return _mean_of(study, trial) + (f" ± {stdev(accuracies):.1f}" if len(accuracies) > 1 else "")


def _mean_of(study: str, trial: str, metric: str = "accuracy", scale: float = 100, form: str = ".1f") -> str:
    """The mean over the seeds, by default in percent; a dash where nothing was trained."""
    found = reached(study, trial, metric)
    return f"{scale * mean(found):{form}}" if found else LEFT_OUT


def long_range_table() -> str:
    """A row per task: accuracy of always predicting the commonest label and of each attention, and densities."""
    rows = []
    for task, title in TASKS.items():
        cells = []
        for trial in LONG_RANGE_TRIALS:
            cells.append(_points_of(task, trial))
            cells += [_mean_of(task, trial, "density")] if trial in ("random-equal", "sbm-0.1") else []
        rows.append((title, f"{100 * load(task)['runs'][0]['chance']:.1f}", *cells))
    *others, sparse = LONG_RANGE_TRIALS.values()
    return grid(("", "floor", *others, "pairs", sparse, "pairs"), rows)


def equal_edges_table() -> str:
    """A row per task and number of edges: each mask, and by how many points fitted masks lead over random ones."""
    rows = []
    for task, title in TASKS.items():
        study = f"{task}-edges"
        for c in EQUAL_EDGES.get(task, (8,)):
            trials = "full", f"fitted-{c}", f"random-{c}", "window"
            cells = [_points_of(study, trial) for trial in trials]
            lead = load("paired")["studies"][study]["ahead"][f"fitted-{c}"]
            lead = f"{show(100 * lead['mean'], '.1f')} ± {100 * lead['error']:.1f}"
            pairs = (_mean_of(study, trial, "density") for trial in (trials[1], "window"))
            rows.append((title, c, next(pairs), *cells, next(pairs), lead))
    return grid(("", "c", "pairs", "full", "fitted", "random", "window", "its pairs", "lead"), rows)


def language_table() -> str:
    """A row per attention: perplexity and density after pre-training, and accuracy on each task in percent."""
    rows = []
    for trial, title in LANGUAGE_TRIALS.items():
        before = _mean_of("glue/mlm", trial, "perplexity", 1, ".0f"), _mean_of("glue/mlm", trial, "density")
        rows.append((title, *before, *(_points_of(f"glue/{task}", trial) for task in GLUE)))
    chances = (f"{100 * load(f'glue/{task}')['runs'][0]['chance']:.1f}" for task in GLUE)
    alone = load("glue/mlm")["runs"][0]["frequencies"]["perplexity"]
    rows.append(("predicting by frequency", f"{alone:,.0f}", LEFT_OUT, *chances))
    return grid(("", "perplexity", "pairs", *GLUE.values()), rows)


def mlm_edges_table() -> str:
    """A row per mask of the masked language model: perplexity of each seed, density, and lead over the window."""
    rows = []
    for trial, title in load("mlm-edges")["titles"].items():
        perplexities = ", ".join(f"{x:.0f}" for x in reached("mlm-edges", trial, "perplexity"))
        behind = load("paired_blocks")["behind"]["window"].get(trial)
        lead = f"{show(-behind['mean'], '.2f')} ± {behind['error']:.2f}" if behind else LEFT_OUT
        rows.append((title, perplexities, _mean_of("mlm-edges", trial, "density"), lead))
    return grid(("", "perplexity by seed", "pairs", "nats ahead of the window"), rows)


# --- time and memory ---

# Tokens and density of the benchmark's cases shown in few rows: too short, too dense, and two where SBM pays off.
CASES = ((1024, 0.04), (4096, 0.16), (4096, 0.01), (16384, 0.0025))
LENGTHS = (1024, 2048, 4096, 8192, 16384)
KINDS = ("near-constant", "structured")
N_CLUSTERS, D_HEAD = 128, 32
DENSEST = 0.16  # beyond this a mask is drawn densely, and time is no longer a straight line


def demo_table() -> str:
    """A row per attention of the demo: accuracy, edges per query and time of a step."""
    titles = {
        "full": "full attention",
        "sbm": "SBM, as published",
        "fitted": "**SBM, fitted**",
        "random-equal": "random mask of the fitted density",
    }
    rows = []
    for trial, title in titles.items():
        mine = reached("demo", trial)
        accuracy, edges = _spread(mine), _spread(reached("demo", trial, "edges"), ".1f")
        ratios = [found[trial]["ratio"] for found in load("landing")["seeds"].values()]
        rows.append((title, accuracy, edges, "1 ×" if trial == "full" else f"{median(ratios):.1f} ×"))
    return grid((f"{len(mine)} seeds", "accuracy", "edges per query", "time of a step"), rows)


def longer_sequences_table() -> str:
    """Time of a step of the attention layer alone, for straight-through and for fitted masks."""
    rows = [(f"{n:,} tokens", f"{100 * p:g} %", f"{step_ratios(n, p)} ×") for n, p in CASES]
    for n, found in load("fitted_cost")["attention"].items():
        density, ratio = found["keys_per_query"] / int(n), found["fitted"]["ratio"]
        rows.append((f"{int(n):,} tokens, fitted by training", f"{100 * density:.2g} %", f"{ratio:.2f} ×"))
    return grid(("SBM on longer sequences", "density", "time of a step"), rows)


def machine(file: str) -> str:
    """The processor, threads and torch version of a result."""
    about = load(file)["manifest"]
    threads = "one thread" if about["threads"] == 1 else f"{about['threads']} threads"
    return f"{about['processor']}, {threads}, torch {about['torch']}"


def step_ratios(n: int, density: float) -> str:
    """Time of a step relative to full attention, for the cheaper and the more expensive kind of memberships."""
    wanted = {"n": n, "density": density, "n_clusters": N_CLUSTERS, "is_training": True}
    mine = [case["results"] for case in cases("bench", "attention") if wanted.items() <= case.items()]
    found = [results["sbm"]["ratio"] for results in mine if "ratio" in results["sbm"]]
    return f"{min(found):.2f} to {max(found):.2f}" if found else LEFT_OUT


def bench_machine(file: str) -> str:
    """The date and the machine of a benchmark."""
    about = load(file)["manifest"]
    names = "gpu", "driver", "cuda", "triton", "processor", "threads", "python", "torch", "numba"
    return f"{about['date']}: {', '.join(f'{name} {about[name]}' for name in names if name in about)}"


def _two_digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio > 0.1 else f"{ratio:.3f}"


FIELDS: dict[str, Callable[[Result], str]] = {
    "tokens": lambda case: f"{case['n']:,}",
    "pairs": lambda case: percent(case["density"]),
    "clusters": lambda case: str(case["n_clusters"]),
    "memberships": lambda case: case["kind"],
    "keys": lambda case: f"{case['n'] * case['density']:.0f} keys",
}
"""Properties by which the cases of a sweep differ."""


def sweep_table(file: str, suite: str, sweep: str, row: str, column: str) -> str:
    """Time relative to full attention in the cases of a sweep, or our milliseconds where full attention did not run.

    ``row`` and ``column`` are names of :data:`FIELDS`; there are as many columns for inference as for training.
    """
    cells: dict[str, dict[str, str]] = {}
    order = "n", "density", "n_clusters"
    for case in sorted(cases(file, suite), key=lambda case: (not case["is_training"], *(case[x] for x in order))):
        if sweep in case["sweeps"]:
            ours = case["results"]["sbm"]
            head = f"{'training' if case['is_training'] else 'inference'},<br>{FIELDS[column](case)}"
            shown = _two_digits(ours["ratio"]) if "ratio" in ours else f"{milliseconds(ours['median'])} ms"
            cells.setdefault(FIELDS[row](case), {})[head] = shown
    heads = list(next(iter(cells.values())))
    return grid((row, *heads), [(name, *(mine[head] for head in heads)) for name, mine in cells.items()])


def fitted_gain_table() -> str:
    """The speed of a fitted mask of 16 keys per query, as a multiple of full attention, over the processors."""
    lengths, rows = (512, *LENGTHS), []
    for mode in (True, False):
        ratios: dict[int, list[float]] = {n: [] for n in lengths}
        for case in (x for one in machines("bench_fitted") for x in one["suites"]["fitted"]["found"]["cases"]):
            if "n" in case["sweeps"] and case["is_training"] == mode and case["n"] in ratios:
                ratios[case["n"]].append(case["results"]["sbm"]["ratio"])
        cells = (f"{1 / max(mine):.1f} to {1 / min(mine):.1f}" for mine in ratios.values())
        rows.append(("training step" if mode else "inference", *cells))
    return grid(("tokens", *(f"{n:,}" for n in lengths)), rows)


CONTESTANTS = {
    "sbm": "this library",
    "window": "a window with as many keys",
    "transformer_conv": "PyTorch Geometric's `TransformerConv`",
    "pyg": '`backend="pyg"`',
    "torch.sparse": "`torch.sparse`",
    "dense": '`backend="dense"`',
}


def contestants_table() -> str:
    """A row per implementation, a column per mask and length: time of a training step relative to full attention."""
    places = ("bench_fitted", "fitted", "fitted", 16.0), ("bench", "attention", "near-constant", 40.96)
    found = [
        find(cases(file, suite), kind=kind, n=n, density=keys / n, is_training=True, n_clusters=n_clusters)["results"]
        for (file, suite, kind, keys), n_clusters in zip(places, (1024, N_CLUSTERS), strict=True)
        for n in (1024, 4096)
    ]
    ratios = {title: [at.get(name, {}).get("ratio") for at in found] for name, title in CONTESTANTS.items()}
    rows = [(title, *(f"{x:.2f}" if x else LEFT_OUT for x in mine)) for title, mine in ratios.items() if any(mine)]
    return grid(("", *(f"{what}, {n}" for what in ("fitted", "paper's") for n in ("1,024", "4,096"))), rows)


def gpu_table() -> str:
    """A row per size: time of full attention on the GPU, and that of our fastest relative to it, over memberships."""
    found = [case for suite in load("gpu/bench")["suites"].values() for case in suite["found"]["cases"]]
    found = [case for case in found if case["kind"] in KINDS and "ratio" in case["results"]["sdpa"]]
    rows = []
    for n, density in sorted({(case["n"], case["density"]) for case in found}):
        cells = []
        for way in (True, False):
            mine = [c["results"] for c in found if (c["n"], c["density"], c["is_training"]) == (n, density, way)]
            ours = [min(one["ratio"] for x, one in at.items() if x in OURS_ON_GPU and "ratio" in one) for at in mine]
            cells += [f"{min(at['sdpa']['median'] for at in mine):.2f}", f"{min(ours):.1f} to {max(ours):.1f}"]
        rows.append((f"{n:,}", percent(density), *cells))
    heads = (what for mode in ("training", "inference") for what in (f"{mode}, ms", "ours / full"))
    return grid(("tokens", "pairs", *heads), rows)


def counted_table() -> str:
    """A row per pass and length: launches, bytes, and how long they take at least on two GPUs."""
    rows = []
    for way, title in {"forward": "forward", "step": "training step"}.items():
        for n, one in load("gpu/counted")["counted"][way].items():
            sizes = (f"{one[name] / 2**20:,.0f}" for name in ("bytes", "gathered"))
            times = (f"{one[name]:.2f}" for name in ("ms_A100", "ms_H100", "ms_launches"))
            rows.append((title, f"{int(n):,}", one["launches"], *sizes, *times))
    heads = "launches", "tensors, MiB", "gathered, MiB", "A100, ms", "H100, ms", "launching, ms"
    return grid(("pass", "tokens", *heads), rows)


def built_table() -> str:
    """A row per kernel: registers of a thread, and bytes that it spills, for each capability."""
    built = {f"{float(cc) / 10:.1f}": kernels for cc, kernels in load("gpu/counted")["built"].items() if cc.isdigit()}
    names = dict.fromkeys(name for kernels in built.values() for name in kernels)
    rows = [
        (f"`{name}`", *(kernels[name][what] for kernels in built.values() for what in ("registers", "spilled")))
        for name in names
    ]
    heads = (what for cc in built for what in (f"registers, {cc}", f"spilled bytes, {cc}"))
    return grid(("kernel", *heads), rows)


# --- when to use it, and costs ---


def fit_line(kind: str, *, is_training: bool) -> tuple[float, float, float]:
    """Fits the time relative to full attention by a / n + b · density, with relative errors.

    Returns:
        a, b, and the largest factor by which the line is off.
    """
    rows = [
        (case["n"], case["density"], case["results"]["sbm"]["ratio"])
        for case in cases("bench", "attention")
        if (case["kind"], case["n_clusters"], case["is_training"]) == (kind, N_CLUSTERS, is_training)
        and case["density"] <= DENSEST
        and "ratio" in case["results"]["sbm"]
    ]
    n, density, ratio = np.array(rows).T
    relative = np.stack([1 / n, density], 1) / ratio[:, None]
    (a, b), *_ = np.linalg.lstsq(relative, np.ones(len(rows)), rcond=None)
    return float(a), float(b), float(np.exp(np.abs(np.log(relative @ (a, b))).max()))


def limits_table() -> str:
    """Per length, the density below which SBM needs fewer operations, and less time."""
    lines = {way: [fit_line(kind, is_training=way) for kind in KINDS] for way in (False, True)}
    rows = []
    for n in LENGTHS:
        choosing = 2 * D_HEAD + N_CLUSTERS + N_CLUSTERS**2 / (2 * D_HEAD)
        operations = 1 - choosing / n - N_CLUSTERS**2 / (2 * n**2)
        cells = [_percents([(1 - a / n) / b for a, b, _ in line]) for line in lines.values()]
        rows.append((f"{n:,}", f"{100 * operations:.0f} %", *cells))
    worst = max(off for line in lines.values() for *_, off in line)
    table = grid(("tokens", "operations", "seconds, inference", "seconds, training"), rows)
    return table + f"\n\n*Computed from fitted straight lines, whose errors are at most a factor of {worst:.2f}.*"


def _percents(limits: list[float]) -> str:
    low, high = min(limits), max(limits)
    if high <= 0:
        return "never"
    rounds_to_nothing = low < 0.0005
    return f"{100 * high:.1f} %, or never" if rounds_to_nothing else f"{100 * low:.1f} to {100 * high:.1f} %"


def cost_table(name: str) -> str:
    """A table of counted operations, relative to full attention."""
    return next(table.markdown() for table in cost_tables(load("costs")) if table.name == name)
