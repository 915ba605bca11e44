"""Causal attention on recall, on text and as a context grows; writes ``results/causal.json`` and draws it.

Text is ``imdb_unsup_train.txt.gz`` of the data folder by bytes: ``sbmt data prepare corpus --reduced --vocab-size 261
--from $SBMT_DATA/lm/imdb_unsup_train.txt.gz``. It takes an hour or so on one core.
"""

from math import log
from typing import Any

import torch

from results.measure.common import RESULTS, RUNS, difference, run, write
from sbmt import CausalLM, Encoder
from sbmt.attention.cache import Cache
from sbmt.experiments.benchmarks.timing import Entry, Pace, machine_manifest, race
from sbmt.experiments.plots.style import saved_figure
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, run_study
from sbmt.experiments.training.evaluate import evaluate

PARTS = "recall", "longer", "text"  # studies, whose names begin with causal-
LENGTHS = 256, 1024, 4096, 16_384, 65_536
PACE = Pace(seconds=15.0, least=5, most=201)


def table(study: Study) -> list[dict[str, Any]]:
    """A row per trial: what each seed reaches, keys a query included; of text bits per byte of every block."""
    rows: dict[str, Any] = {t.name: {"trial": t.name, "title": t.title, "seeds": []} for t in study.trials}
    for name, trained in run_study(study, RUNS / study.name):
        n, test = trained.config.length, trained.test
        rows[name]["seeds"].append({"accuracy": test.accuracy, "keys": test.density * (n + 1) / 2})
        if study.config.task == "language":
            losses = evaluate(trained, trained.config.test_examples).losses.view(-1, n - 1)  # blocks predicted
            rows[name].setdefault("bits", []).append((losses.sum(1) / log(2) / (n - 2)).tolist())
    for row in rows.values():
        if "bits" in row:
            row["behind"] = difference(row["bits"], rows["full"]["bits"])
    for row in rows.values():
        if "bits" in row:
            row["bits"] = [sum(blocks) / len(blocks) for blocks in row["bits"]]
    return list(rows.values())


@torch.no_grad()
def step(n: int, **attention: Any) -> Entry:
    """Reads one token after a context of n, in a network with weights drawn at random.

    Full attention's cache is filled with random keys and values, which take as long to read as others.
    """
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


def draw(recall: list[dict[str, Any]], text: list[dict[str, Any]], decode: dict[str, Any]) -> None:
    """Accuracy and bits per byte against keys a query, and the time of a token against the context."""
    with saved_figure(RESULTS / "causal.png", 11.0, 3.6) as figure:
        axes = figure.subplots(1, 3)
        for ax, rows, what in ((axes[0], recall, "accuracy"), (axes[1], text, "bits")):
            for i, row in enumerate(rows):
                found = row["bits"] if what == "bits" else [seed[what] for seed in row["seeds"]]
                looks: Any = {"color": f"C{i % 6}", "marker": "os"[i // 6], "label": row["title"]}
                ax.scatter([seed["keys"] for seed in row["seeds"]], found, **looks)
            ax.legend(fontsize="x-small")
        for name in ("full", "fitted"):
            axes[2].plot(LENGTHS, [decode[str(n)][name]["median"] for n in LENGTHS], marker="o", label=name)
        axes[2].legend()
        axes[0].set(title="recall, 64 tokens", xlabel="keys a query", ylabel="accuracy", xscale="log")
        axes[1].set(title="text, 256 bytes", xlabel="keys a query", ylabel="bits per byte", xscale="log")
        axes[2].set(title="a token from the cache", xlabel="context", ylabel="milliseconds", xscale="log", yscale="log")


def main() -> None:
    """Trains, measures and writes."""
    found: dict[str, Any] = {part: table(STUDIES[f"causal-{part}"]) for part in PARTS}
    decode = {}
    for n in LENGTHS:
        entries = {"full": step(n, attention="full"), "fitted": step(n, preset="fitted")}
        decode[str(n)] = race(entries, PACE, reference="full", headline=("fitted",))
    write("causal", found | {"decode": decode}, machine_manifest())
    draw(found["recall"], found["text"], decode)


if __name__ == "__main__":
    run(main, "causal")
