"""Fits masks to a pretrained encoder from Hugging Face Transformers, and compares masks by sentence embeddings."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import read_text
from sbmt.experiments.files import read_file
from sbmt.experiments.manifest import manifest
from sbmt.experiments.plots.encoder_masks import draw_encoder_masks
from sbmt.experiments.sparsification.compare import Track, compare
from sbmt.sparsification.convert import sparsify
from sbmt.sparsification.fit import endless, fit_block_models
from sbmt.sparsification.huggingface import attention_modules

MEASURED_ON = 2  # number of batches on which other masks are tuned and all masks are measured
LEAST_TEXTS = 64
MOST_ASKED = 128  # number of texts whose embeddings are compared by default, but at most a quarter of all texts
Batch = dict[str, Tensor]  # the arguments of an encoder


def load_encoder(folder: Path) -> tuple[Any, Any]:
    """Loads an encoder and its tokenizer as written by ``save_pretrained``. Nothing is downloaded or unpickled."""
    from safetensors import SafetensorError
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    read_file(folder / "config.json", do="name a folder that save_pretrained wrote")
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    logging.disable_progress_bar()
    try:
        model = AutoModel.from_pretrained(folder, use_safetensors=True, **local)
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    except (OSError, ValueError, KeyError, TypeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        do = "check that it contains config.json, model.safetensors and the tokenizer's files"
        raise SbmtError(f"a Transformers encoder in {folder}", reason, do) from error
    if any(module.is_causal for module in attention_modules(model)):
        do = "call sbmt.sparsify in Python, which makes causal masks for causal models"
        raise SbmtError(f"an encoder with non-causal attention in {folder}", type(model).__name__, do)
    return model.eval(), tokenizer


def tokenize(tokenizer: Any, texts: Sequence[str], length: int, batch: int = 8) -> list[Batch]:
    """Returns batches of tokenised texts, truncated to ``length`` tokens and padded to the longest text of a batch."""
    pieces = [list(texts[i : i + batch]) for i in range(0, len(texts), batch)]
    options: dict[str, Any] = {"truncation": True, "max_length": length, "padding": True, "return_tensors": "pt"}
    return [dict(tokenizer(piece, **options)) for piece in pieces]


@torch.no_grad()
def embed(model: nn.Module, batches: Sequence[Mapping[str, Tensor]]) -> Float[Tensor, "texts d"]:
    """Returns sentence embeddings: the mean of each text's last hidden states, scaled to length 1."""
    embedded = []
    for batch in batches:
        real = batch["attention_mask"][..., None]
        states = model(**batch).last_hidden_state
        embedded.append(nn.functional.normalize((states * real).sum(1) / real.sum(1), dim=-1))
    return torch.cat(embedded)


def sparsify_encoder(
    folder: Path, text: Path, length: int, n_asked: int | None, steps: int, options: dict[str, Any], track: Track
) -> tuple[Callable[[Path], None], dict[str, Any]]:
    """Fits masks to an encoder, and compares them with other masks of the same density on held-out texts of a file.

    Returns a function that saves the sparse encoder and a figure in a folder, and the results of the comparison.
    """
    texts = [line for _, line in read_text(text) if line.strip()]
    if len(texts) < LEAST_TEXTS:
        raise SbmtError(f"at least {LEAST_TEXTS} lines with text in {text}", len(texts), "add more lines")
    n_asked = min(n_asked or MOST_ASKED, len(texts) // 4)
    model, tokenizer = load_encoder(folder)
    asked, others = (tokenize(tokenizer, part, length) for part in (texts[:n_asked], texts[n_asked:]))
    tuned_on, fitted_on = others[:MEASURED_ON], endless(others[MEASURED_ON:])
    torch.manual_seed(0)
    sparse = sparsify(model, **options)
    fit_block_models(sparse, track(fitted_on, description="fit", total=steps + 1), steps=steps, n_measured=1)
    wanted = embed(model, asked)
    kinds = compare(model, sparse, tuned_on, "cosine", lambda masked: (embed(masked, asked) * wanted).sum(-1), track)
    result = {"model": folder.name, "texts": n_asked, "length": length, "steps": steps, "options": options}

    def save(folder: Path) -> None:
        sparse.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        draw_encoder_masks({"": kinds}, folder / "masks.png")

    return save, result | {"kinds": kinds, "manifest": manifest()}
