"""Fitted masks for a pretrained Hugging Face Transformers encoder, beside other masks of the same density."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.block_model.fit import auxiliary_loss
from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import read_text
from sbmt.experiments.files import read_file, write_bytes
from sbmt.experiments.manifest import manifest
from sbmt.experiments.sparsification.compare import KINDS, Bar, Found, compare, table
from sbmt.layers import SBMAttention
from sbmt.sparsification.convert import sparsify
from sbmt.sparsification.fit import endless, falling, fit_block_models, kept
from sbmt.sparsification.huggingface import attention_modules

BATCH, LENGTH = 8, 256
MEASURED_ON = 2  # batches that other masks are tuned on, and that all masks are measured on
LEAST_TEXTS, MOST_ASKED = 64, 128
"""The least number of texts, and the number whose embeddings are compared by default, at most a quarter of all."""
BLOCK_MODEL_RATE, LARGEST_NORM = 1e-3, 1.0
"""In distillation: the block models' learning rate, and the length at which the gradient of other weights is cut."""

Batch = dict[str, Tensor]
"""The arguments of an encoder."""


def load_encoder(folder: Path) -> tuple[Any, Any]:
    """The encoder and the tokenizer in a folder that ``save_pretrained`` wrote; nothing is downloaded or unpickled."""
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
        raise SbmtError(f"an encoder of Transformers in {folder}", reason, do) from error
    if any(module.is_causal for module in attention_modules(model)):
        do = "call sbmt.sparsify in Python, which makes causal masks for causal models"
        raise SbmtError(f"an encoder with non-causal attention in {folder}", type(model).__name__, do)
    return model.eval(), tokenizer


def read_texts(path: Path) -> list[str]:
    """The texts in a file: its lines that are not empty."""
    lines = (line.strip() for _, line in read_text(path))
    if len(texts := [line for line in lines if line]) < LEAST_TEXTS:
        do = "add texts: masks are fitted on some of them and compared on others"
        raise SbmtError(f"at least {LEAST_TEXTS} lines with text in {path}", len(texts), do)
    return texts


def tokenize(tokenizer: Any, texts: Sequence[str], length: int = LENGTH, batch: int = BATCH) -> list[Batch]:
    """Batches of texts, cut off after ``length`` tokens and padded to the longest of their batch."""
    pieces = [list(texts[i : i + batch]) for i in range(0, len(texts), batch)]
    options: dict[str, Any] = {"truncation": True, "max_length": length, "padding": True, "return_tensors": "pt"}
    return [dict(tokenizer(piece, **options)) for piece in pieces]


def embed(model: nn.Module, batches: Sequence[Mapping[str, Tensor]]) -> Float[Tensor, "texts d"]:
    """Sentence embeddings: the mean of each text's last hidden states, scaled to length 1."""
    with torch.no_grad():
        return torch.cat([embed_batch(model, batch) for batch in batches])


def embed_batch(model: nn.Module, batch: Mapping[str, Tensor]) -> Float[Tensor, "batch d"]:
    """The same for one batch, with gradients."""
    real = batch["attention_mask"][..., None]
    states = model(**batch).last_hidden_state
    return nn.functional.normalize((states * real).sum(1) / real.sum(1), dim=-1)


def distil(
    model: nn.Module, teacher: nn.Module, batches: Sequence[Batch], steps: int, learning_rate: float = 1e-4
) -> tuple[float, ...]:
    """Trains all weights of an encoder under its masks to reproduce its teacher's embeddings, and returns all losses.

    The loss is 1 − cosine, averaged over the texts of a batch, without labels. Masks are those that are drawn in use:
    dropout and exploration are switched off permanently. Fitted block models keep following the attention, so the
    share of pairs changes, too: measure it again. Learning rates fall to zero over the last third.
    """
    layers = [m for m in model.modules() if isinstance(m, SBMAttention)]
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for layer in layers:
        layer.exploration = 0.0
    blocks = [p for layer in layers for p in layer.block_parameters()]
    others = [p for p in model.parameters() if all(p is not block for block in blocks)]
    optimizer = torch.optim.Adam([{"params": others, "lr": learning_rate}, {"params": blocks, "lr": BLOCK_MODEL_RATE}])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    outputs: list[Any] = []
    hooks = [layer.register_forward_hook(lambda *call: outputs.append(call[-1])) for layer in layers]
    losses = []
    with kept(model.modules(), "training"):
        model.train()
        for _, batch in zip(range(steps), endless(batches), strict=False):
            outputs.clear()
            loss = 1 - (embed_batch(model, batch) * embed(teacher, [batch])).sum(-1).mean()
            optimizer.zero_grad()
            (loss + auxiliary_loss(outputs) if outputs else loss).backward()
            nn.utils.clip_grad_norm_(others, LARGEST_NORM)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    for hook in hooks:
        hook.remove()
    return tuple(losses)


def cosine_to(model: nn.Module, asked: Sequence[Batch]) -> Callable[[nn.Module], Float[Tensor, " texts"]]:
    """The score for :func:`compare`: the cosine between the embeddings of each text under a network and the model."""
    wanted = embed(model, asked)
    return lambda masked: (embed(masked, asked) * wanted).sum(-1)


def sparsify_encoder(
    run: Path, text: Path, length: int, examples: int | None, steps: int, options: dict[str, Any], bar: Bar
) -> Found:
    """An encoder of Transformers with fitted masks, beside others; saving it also writes the table and a figure."""
    from sbmt.experiments.plots.encoder_masks import draw_encoder_masks

    texts = read_texts(text)
    n_asked = min(examples or MOST_ASKED, len(texts) // 4)
    model, tokenizer = load_encoder(run)
    asked, others = (tokenize(tokenizer, part, length) for part in (texts[:n_asked], texts[n_asked:]))
    tuned_on, fitted_on = others[:MEASURED_ON], others[MEASURED_ON:]
    torch.manual_seed(0)
    sparse = sparsify(model, **options)
    fit_block_models(sparse, fitted_on, steps=steps, n_measured=1, on_step=bar("fit", steps))
    rows = compare(model, sparse, tuned_on, "cosine", cosine_to(model, asked), bar("kinds of mask", len(KINDS)))
    found = table(rows, "cosine", f"Cosine of {n_asked} embeddings to those of full attention, {run.name}")

    def save(folder: Path) -> None:
        sparse.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        write_bytes(folder / "masks.md", f"{found.markdown()}\n".encode())
        draw_encoder_masks({"": rows}, folder / "masks.png")

    result = {"model": run.name, "texts": n_asked, "length": length, "steps": steps, "options": options, "kinds": rows}
    return save, result | {"manifest": manifest()}, found
