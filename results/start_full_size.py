"""Takes one optimiser step with every preset of Table 7, at the paper's length, eight examples in eight parts.

``python results/start_full_size.py`` writes ``results/full_size.json``: that the presets start and step here, what
memory a part takes, and how long the paper's whole batch would at that rate. The tokens are random and as many as the
task allows. Minutes on one core; tasks can be named.
"""

import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sbmt.files import read_json, write_json
from sbmt.tasks.folders import prepared_folder
from sbmt.tasks.prepared import prepare
from sbmt.tasks.source import Examples, Shard, Source, by_shard
from sbmt.training.long_range import PAPER
from sbmt.training.runs import manifest

BATCH = 8
PATH = Path(__file__).parent / "full_size.json"
CLASSES = {"listops": 10, "image": 10}
VOCABULARY = {"listops": (17, 0, 1), "text": (257, 1, 0), "retrieval": (257, 1, 0)}  # ids, first id, least symbol


def random_source(task: str) -> Source:
    """Examples of full length without meaning."""
    ids, first_id, least = VOCABULARY.get(task, (256, 0, 0))
    n_classes, n_documents = CLASSES.get(task, 2), 2 if task == "retrieval" else 1

    def make(n_examples: int) -> Examples:
        generator = np.random.default_rng(0)
        shape = (n_examples, n_documents, PAPER[task].length)
        symbols = generator.integers(least, ids - 1, shape).astype(np.uint8)
        lengths = np.full(shape[:2], shape[2], np.int64)
        return Examples(symbols.ravel(), lengths, np.arange(n_examples, dtype=np.int64) % n_classes)

    sizes = {"train": BATCH, "dev": 1, "test": 1}
    shards = tuple(Shard(split, partial(make, n), split) for split, n in sizes.items())
    names = tuple(map(str, range(n_classes)))
    return Source("random-" + task, task, "generated", names, ids, first_id, {"note": "random"}, shards, by_shard)


def step(task: str) -> dict[str, Any]:
    """One optimiser step, an example at a time."""
    from sbmt.training.fit import fit

    prepare(random_source(task), prepared_folder())
    config = PAPER[task].override(
        data=f"random-{task}", steps=1, warmup_steps=0, eval_every=1, batch_size=BATCH, accumulate=BATCH
    )
    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        fit(
            config, Path(folder) / "warm", on_step=lambda _: moments.append(time.perf_counter())
        )  # compiles the kernels
        start = time.perf_counter()
        run = fit(config, Path(folder) / "run", on_step=lambda _: moments.append(time.perf_counter()))
    seconds = moments[-1] - start
    return {
        "length": config.length,
        "batch_size": PAPER[task].batch_size,
        "loss": round(run.rows[0]["loss"], 4),
        "density": round(run.rows[0]["density"], 4),
        "seconds_per_example": round(seconds / BATCH, 2),
        "minutes_per_batch": round(seconds / BATCH * PAPER[task].batch_size / 60, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def full_size_table(result: dict[str, Any]) -> str:
    """As Markdown."""
    heads = ("", "tokens", "density", "seconds per example", "peak memory, MiB", "paper's batch", "minutes for it")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for task, found in result["tasks"].items():
        names = ("length", "density", "seconds_per_example", "peak_mib", "batch_size", "minutes_per_batch")
        rows.append(f"| {task} | {' | '.join(f'{found[name]:,}' for name in names)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        write_json(Path(sys.argv[3]), step(sys.argv[2]))
    else:
        found = read_json(PATH)["tasks"] if PATH.exists() else {}
        for task in sys.argv[1:] or list(PAPER):
            with tempfile.TemporaryDirectory() as folder:  # a process for each, so that its peak is its own
                path = Path(folder) / "step.json"
                subprocess.run([sys.executable, __file__, "--one", task, str(path)], check=True)
                found[task] = read_json(path)
            write_json(PATH, {"tasks": {t: found[t] for t in PAPER if t in found}, "manifest": manifest()})
            print(task, found[task], flush=True)
