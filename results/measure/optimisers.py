"""Do fitted masks learn with any ordinary optimiser? Writes ``results/optimisers.json``.

``python results/measure/optimisers.py`` trains the preset ``fitted`` in a plain loop, with Adam and AdamW as they come,
three seeds on each of three tasks, and scores it on 1,024 unseen sequences. It takes an hour on one core; cells that
the file already holds are not run again.
"""

from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sbmt
from sbmt.command import run_command
from sbmt.experiments.data.recall import sample_recall
from sbmt.experiments.data.repeated_tokens import sample_fresh_values, sample_repeated_tokens
from sbmt.experiments.files import read_json, write_json
from sbmt.models import Encoder, TokenTagger

RESULT = Path(__file__).resolve().parents[1] / "optimisers.json"
OPTIMISERS = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
SEEDS = 0, 1, 2
EDGES = {"recall": 24.0, "fresh values": 64.0, "repeated tokens": 64.0}
INPUTS: dict[str, dict[str, Any]] = {
    "recall": {"vocab_size": 161, "n_ids": 2},
    "fresh values": {"vocab_size": None, "d_input": 16},
    "repeated tokens": {"vocab_size": 64},
}


def sample(task: str, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs and labels: 128 tokens of which 24 are questions, or 64 that occur again or do not."""
    if task == "recall":
        return sample_recall(batch, 24, 24, 80, 128, 32, generator=generator)
    draw = sample_fresh_values if task == "fresh values" else sample_repeated_tokens
    return draw(batch, 64, generator=generator)


def score(task: str, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and accuracy."""
    if task == "recall":
        is_asked = labels >= 0
        logits, labels = logits[is_asked], labels[is_asked]
        return nn.functional.cross_entropy(logits, labels), (logits.argmax(-1) == labels).float().mean()
    logits = logits.squeeze(-1)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return loss, ((logits > 0) == (labels > 0.5)).float().mean()


def train(task: str, optimiser: str, seed: int, steps: int = 1500) -> dict[str, float]:
    """Accuracy and density on unseen sequences after training sparsely from the first step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    sizes = {"d_model": 64, "d_hidden": 64, "n_heads": 1, "n_layers": 1, "embedding_std": 1.0}
    encoder = Encoder(max_length=None, **sizes, preset="fitted", edges_per_query=EDGES[task], **INPUTS[task])
    model = TokenTagger(encoder, 32 if task == "recall" else 1)
    masks = [p for m in model.modules() if isinstance(m, sbmt.SBMAttention) for p in m.parameters()]
    network = [p for p in model.parameters() if all(p is not mine for mine in masks)]
    stepper: Any = OPTIMISERS[optimiser]([{"params": network, "lr": 3e-3}, {"params": masks, "lr": 1e-2}])
    falling = torch.optim.lr_scheduler.LambdaLR(stepper, lambda step: min(1.0, (steps - step) / (steps / 3 + 1)))
    for _ in range(steps):
        tokens, labels = sample(task, 32, generator)
        output = model(tokens)
        loss = score(task, output.values, labels)[0] + sbmt.auxiliary_loss(output)
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        falling.step()
    return evaluate(task, model.eval())


@torch.no_grad()
def evaluate(task: str, model: nn.Module) -> dict[str, float]:
    """Means over 16 batches of 64 sequences."""
    generator, found = torch.Generator().manual_seed(1_000_003), []
    for _ in range(16):
        tokens, labels = sample(task, 64, generator)
        output = model(tokens)
        found.append((score(task, output.values, labels)[1], output.attention[0].density.mean()))
    accuracy, density = torch.tensor(found).mean(0).tolist()
    return {"accuracy": round(accuracy, 4), "density": round(density, 4)}


def main() -> None:
    """Trains what is missing."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    result: dict[str, Any] = read_json(RESULT) if RESULT.exists() else {}
    for task, optimiser, seed in product(EDGES, OPTIMISERS, SEEDS):
        cells = result.setdefault(task, {}).setdefault(optimiser, {})
        if str(seed) not in cells:
            cells[str(seed)] = train(task, optimiser, seed)
            print(task, optimiser, seed, cells[str(seed)], flush=True)
            write_json(RESULT, result)


if __name__ == "__main__":
    run_command(main, "optimisers")
