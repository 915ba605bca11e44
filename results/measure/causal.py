"""Measures causal attention on recall, text and long contexts; writes ``results/causal.json`` and its figure.

Prepare the text first by ``sbmt data prepare corpus --name corpus-bytes --vocab-size 261 --from
$SBMT_DATA/lm/imdb_unsup_train.txt.gz``. The script takes about two hours on one core.
"""

from dataclasses import replace
from functools import partial
from math import log
from typing import Any

import torch

from results.measure.common import RESULTS, RUNS, difference, kept, run, write
from sbmt import CausalLM, Encoder
from sbmt.attention.cache import Cache
from sbmt.experiments.benchmarks.machine import machine_manifest
from sbmt.experiments.benchmarks.timing import Entry, race
from sbmt.experiments.plots.causal import draw_causal
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, run_study
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.run import Run

LONGER = {256: 200, 1024: 400}  # training steps at each length, starting from the weights for shorter sequences
LENGTHS = 256, 1024, 4096, 16_384, 65_536


def bits_of(trained: Run) -> list[float]:
    """Returns the bits per token of each test block."""
    losses = evaluate(trained, trained.config.test_examples).losses.view(-1, trained.config.length - 1)
    return (losses.sum(1) / log(2) / (trained.config.length - 2)).tolist()


def table(*studies: Study) -> list[dict[str, Any]]:
    """Returns one row per trial, with each seed's accuracy, keys per query and, for text, bits per token."""
    rows: dict[str, Any] = {t.name: {"trial": t.name, "title": t.title, "seeds": []} for t in studies[0].trials}
    for name, trained in (found for study in studies for found in run_study(study, RUNS / study.name)):
        n, test = trained.config.length, trained.test
        rows[name]["seeds"].append({"accuracy": test.accuracy, "keys": test.density * (n + 1) / 2})
        if trained.config.task == "language":
            place = f"causal/{studies[0].name}-{name}-seed{trained.config.seed}.json"
            rows[name].setdefault("bits", []).append(kept(place, partial(bits_of, trained)))
    full = rows["full"].get("bits")
    for row in (row for row in rows.values() if full):
        row |= {"behind": difference(row["bits"], full), "bits": [sum(bits) / len(bits) for bits in row["bits"]]}
    return list(rows.values())


def longer(n: int, shorter: str, seed: int) -> Study:
    """Returns a study of recall among n tokens that continues a study of shorter sequences.

    The numbers of tokens per step and of pairs per token stay the same, but 256 keys allow at most 255 pairs.
    """
    study, steps = STUDIES["causal-recall"], LONGER[n]
    sizes = {"length": n, "n_pairs": min(n // 4, 255), "batch_size": 4096 // n, "test_sequences": 2**16 // n}
    config = study.config.override(**sizes, steps=steps, cooldown=steps // 2, seed=seed)
    starts = {t.name: {"start": str(RUNS / shorter / f"{t.name}-seed{seed}")} for t in study.trials}
    trials = [replace(t, settings=t.settings | starts[t.name]) for t in study.trials[:6]]
    return Study(f"causal-recall-{n}", f"multi-query recall, {n:,} tokens", config, tuple(trials), 1)


@torch.no_grad()
def step(n: int, **attention: Any) -> Entry:
    """Prepares the timing of one token after n others, with random weights and, for full attention, a random cache."""
    torch.manual_seed(0)
    sizes: Any = {"d_model": 128, "d_hidden": 512, "n_heads": 4, "n_layers": 2}
    model = CausalLM(Encoder(256, None, positions="rotary", causal=True, **sizes, **attention)).eval()
    caches = [Cache() for _ in model.encoder.blocks]
    tokens = torch.randint(256, (1, n + 1))
    if attention == {"attention": "full"}:
        for cache in caches:
            cache.append(*torch.randn(2, 1, 4, n, 32))
    else:
        model(tokens[:, :n], caches=caches)
    return Entry(torch.no_grad()(lambda _: model(tokens[:, n:], caches=caches)))


def decoding(n: int) -> dict[str, Any]:
    """Times the forward pass of one token after ``n`` others, with full attention and with fitted masks."""
    entries = {"full": step(n, attention="full"), "fitted": step(n, preset="fitted")}
    return race(entries, reference="full", seconds=8.0, most=201)


def main() -> None:
    """Trains and measures all networks, writes the result file and draws the figure."""
    found: dict[str, Any] = {part: table(STUDIES[f"causal-{part}"]) for part in ("recall", "text")}
    for n, shorter in ((256, "causal-recall"), (1024, "causal-recall-256")):
        found[f"recall-{n}"] = table(*(longer(n, shorter, seed) for seed in range(STUDIES["causal-recall"].n_seeds)))
    decode = kept("causal/decode.json", lambda: {str(n): decoding(n) for n in LENGTHS})
    write("causal", found | {"decode": decode}, machine_manifest())
    draw_causal(found | {"decode": decode}, RESULTS / "causal.png")


if __name__ == "__main__":
    run(main, "causal")
