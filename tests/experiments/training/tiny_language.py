"""A small corpus, small GLUE tables and small networks, the same in every run."""

import numpy as np

from tests.experiments.data.glue_layout import DEV_MNLI, table

WORDS = ("a", "film", "good", "bad", "that", "is", "not", "café", "中", "<s>", "it 's", "$5")
VOCABULARY = 280
"""Number of special tokens, bytes, and a few sub-words."""

SMALL_OPTIONS = tuple(dict(n_clusters=4, n_features=4, n_landmarks=4, n_projected=4, n_chunk=4).items())
NETWORK = dict(length=16, d_model=8, d_hidden=8, n_heads=2, n_layers=2, option_defaults=(("window", 4), *SMALL_OPTIONS))
TRAINING = dict(batch_size=4, steps=6, warmup_steps=1, eval_every=2, learning_rate=0.01)
N_TRAIN, N_DEV, N_TEST, N_MISMATCHED = 36, 4, 13, 9
"""Numbers of examples per task: 40 training rows, a tenth of which are held out, and the dev tables."""


def sentences(n, seed, most=8):
    """Returns words in a random order."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, most + 1))) for _ in range(n)]


def write_corpus(folder, seed=0):
    """Returns text for train, dev and test: 18 to 22 blocks of 16 tokens for train, and some for the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (split, n) in enumerate({"train": 30, "valid": 12, "test": 12}.items()):
        text = "".join(f"{line}\n" for line in sentences(n, [seed, number]))
        (folder / f"tiny.{split}.txt").write_text(text, "utf-8")
    return folder


def write_glue(folder, tasks=("sst2", "mnli")):
    """Writes tables named as GLUE's. SST-2 labels "good"; MNLI labels how much longer the first sentence is.

    What is commonest in SST-2's training rows is not in its dev table.
    """
    for task in tasks:
        place = folder / {"sst2": "SST-2", "mnli": "MNLI"}[task]
        place.mkdir(parents=True, exist_ok=True)
        held_out = {"dev": N_TEST} if task == "sst2" else {"dev_matched": N_TEST, "dev_mismatched": N_MISMATCHED}
        for number, (stem, n) in enumerate({"train": N_TRAIN + N_DEV, **held_out}.items()):
            first, second = (sentences(n, [7, number, column]) for column in (0, 1))
            if (task, stem) == ("sst2", "dev"):
                first = [f"good {text}" if row % 3 else text for row, text in enumerate(first)]
            texts = [(a,) for a in first] if task == "sst2" else list(zip(first, second, strict=True))
            labels = [_label(task, row) for row in texts]
            columns = DEV_MNLI if stem.startswith("dev_") else None
            (place / f"{stem}.tsv").write_bytes(table(task, texts, labels, columns))
    return folder


def _label(task, texts):
    if task == "sst2":
        return str(int("good" in texts[0]))
    longer = len(texts[0]) - len(texts[1])
    return "neutral" if abs(longer) < 5 else "entailment" if longer > 0 else "contradiction"
