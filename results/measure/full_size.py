"""Takes one optimiser step with every preset of Table 7, at the paper's length, eight examples in eight parts.

``python results/measure/full_size.py`` writes ``results/full_size.json``: that the presets start and step here, how
much memory a part takes, and how long the paper's whole batch would take at that rate. The tokens are random, and as
many as the task allows. MNLI, with pairs and three classes, stands for all of GLUE's tasks. It takes minutes on one
core; tasks can be named on the command line.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sbmt.command import run_command
from sbmt.experiments.data.corpus import VOCABULARY as N_TOKENS
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.data.source import Examples, Parts, Source
from sbmt.experiments.data.tokenizer import Tokenizer, train_tokenizer
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.training.run import manifest
from sbmt.experiments.training.tasks.language import PAPER_MLM, fine_tuning
from sbmt.experiments.training.tasks.long_range import PAPER
from sbmt.experiments.training.tasks.sequence import SequenceConfig

BATCH = 8
PATH = Path(__file__).parents[1] / "full_size.json"
LANGUAGE = ("mlm", "mnli")
N_SPECIAL = {"mlm": 2, "mnli": 4}  # start and end tokens in a block, in a pair
TASKS = (*PAPER, *LANGUAGE)
SIZES = {"train": BATCH, "dev": 1, "test": 1}
CLASSES = {"listops": 10, "image": 10}
VOCABULARY = {"listops": (17, 0, 1), "text": (257, 1, 0), "retrieval": (257, 1, 0)}  # ids, first id, least symbol


def parts_of(make: Callable[[int], Examples]) -> Parts:
    """Every split, made by its number of examples."""
    return lambda: ((split, make(n)) for split, n in SIZES.items())


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

    names = tuple(map(str, range(n_classes)))
    return Source("random-" + task, task, "generated", names, ids, first_id, {"note": "random"}, parts_of(make))


def filled_tokenizer() -> Tokenizer:
    """Bytes, and entries that no text has, up to the size of RoBERTa's vocabulary: a real one needs far more text."""
    content = json.loads(train_tokenizer([], 261).json)
    content["model"]["vocab"] |= {f"entry {i}": i for i in range(261, N_TOKENS)}
    return Tokenizer(json.dumps(content))


def random_language_source(task: str, tokenizer: Tokenizer) -> Source:
    """Tokens of the whole vocabulary for pre-training, pairs of equally long texts for fine-tuning, without meaning."""
    n_inside = PAPER_MLM.length - N_SPECIAL[task]

    def make_stream(n_examples: int) -> Examples:
        ids = np.random.default_rng(0).integers(5, N_TOKENS, n_examples * n_inside).astype(tokenizer.id_type)
        return Examples(ids, np.array([[len(ids)]]), np.zeros(1, np.int64))

    def make_pairs(n_examples: int) -> Examples:
        letters = np.random.default_rng(0).integers(97, 123, (n_examples, 2, n_inside // 2)).astype(np.uint8)
        lengths = np.full(letters.shape[:2], letters.shape[2], np.int64)
        return Examples(letters.ravel(), lengths, np.arange(n_examples, dtype=np.int64) % 3)

    name, note = "random-" + task, {"note": "random", "vocabulary": N_TOKENS}
    if task == "mlm":
        parts = parts_of(make_stream)
        ids, files = (tokenizer.vocab_size, 0), {"tokenizer.json": tokenizer.json}
        kind = tokenizer.id_type
        return Source(name, task, "generated", ("text",), *ids, note, parts, symbol_type=kind, files=files)
    return Source(name, task, "generated", GLUE[task].class_names, 257, 1, note, parts_of(make_pairs))


def paper_config(task: str, folder: Path) -> SequenceConfig:
    """The paper's settings on random examples, which are prepared; a tokeniser that they need is put into a folder."""
    config: SequenceConfig
    if task not in LANGUAGE:
        prepare(random_source(task), prepared_folder())
        config = PAPER[task]
    else:
        tokenizer = filled_tokenizer()
        prepare(random_language_source(task, tokenizer), prepared_folder())
        tokenizer.save(path := folder / "tokenizer.json")
        config = PAPER_MLM if task == "mlm" else fine_tuning(task, "", PAPER_MLM, tokenizer=str(path))
    return config.override(data=f"random-{task}")


def step(task: str) -> dict[str, Any]:
    """One optimiser step, an example at a time."""
    from sbmt.experiments.training.fit import fit

    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        paper = paper_config(task, Path(folder))
        config = paper.override(steps=1, warmup_steps=0, eval_every=1, batch_size=BATCH, accumulate=BATCH)
        fit(
            config, Path(folder) / "warm", on_step=lambda _: moments.append(time.perf_counter())
        )  # compiles the kernels
        start = time.perf_counter()
        run = fit(config, Path(folder) / "run", on_step=lambda _: moments.append(time.perf_counter()))
    seconds = moments[-1] - start
    return {
        "length": config.length,
        "batch_size": paper.batch_size,
        "loss": round(run.rows[0]["loss"], 4),
        "density": round(run.rows[0]["density"], 4),
        "seconds_per_example": round(seconds / BATCH, 2),
        "minutes_per_batch": round(seconds / BATCH * paper.batch_size / 60, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Measures and writes."""
    if sys.argv[1:2] == ["--one"]:
        write_json(Path(sys.argv[3]), step(sys.argv[2]))
    else:
        found = read_json(PATH)["tasks"] if PATH.exists() else {}
        about = manifest() | {"command": Path(__file__).name}  # without the tasks that were named
        for task in sys.argv[1:] or TASKS:
            with tempfile.TemporaryDirectory() as folder:  # a process for each, so that its peak is its own
                path = Path(folder) / "step.json"
                subprocess.run([sys.executable, __file__, "--one", task, str(path)], check=True)
                found[task] = read_json(path)
            write_json(PATH, {"tasks": {t: found[t] for t in TASKS if t in found}, "manifest": about})
            print(task, found[task], flush=True)


if __name__ == "__main__":
    run_command(main, "full_size")
