"""Measures which edges push a network's mask in training; writes ``results/gate_gradients.json`` and ``.png``.

``python results/measure/gate_gradients.py`` takes two minutes or so on one thread. It trains the same network on the
same data and seed, without and with self-loops. The push of a kind of edges is minus the sum of the gate's gradients
over the edges of that kind, so that it is positive where the loss asks for more of them.
"""

from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

from sbmt.block_model.model import BlockModel
from sbmt.command import run_command
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.files import write_json
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, QUIET, VERMILLION
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.run import manifest
from sbmt.experiments.training.tasks import SIZES
from sbmt.graph.edges import EdgeList

ROOT = Path(__file__).resolve().parents[2]

SEED, EVERY = 2, 25
CASES = {"without self-loops": False, "with self-loops": True}
KINDS = ("self", "twin", "other")


class Watch:
    """Observes each gate that a layer makes: its edges, their probabilities, and its gradient once that is known."""

    def __init__(self, layer: Any) -> None:
        self.pushes: Tensor | None = None
        make = layer.block_model

        def watched(*given: Any) -> BlockModel:
            model = make(*given)
            model.gate = lambda edges: self._gate(model, edges)
            return model

        layer.block_model = watched

    def _gate(self, model: BlockModel, edges: EdgeList) -> Tensor:
        gate = BlockModel.gate(model, edges)
        self.edges, self.pushes = edges, None
        self.probability = model.edge_probability(edges).detach()

        def keep(gradient: Tensor) -> None:
            self.pushes = -gradient.detach()

        gate.register_hook(keep)
        return gate

    def by_kind(self, tokens: Tensor) -> dict[str, float]:
        """Push of every kind of edge, and the mean probability of the edges that join equal values."""
        n = tokens.shape[1]
        rows, keys = self.edges.rows(), self.edges.keys
        example, query = rows // n, rows % n
        is_equal = tokens[example, query] == tokens[example, keys]
        is_self = query == keys
        kinds = {"self": is_self, "twin": is_equal & ~is_self, "other": ~is_equal}
        assert self.pushes is not None
        found = {f"push_{kind}": float(self.pushes[chosen].sum()) for kind, chosen in kinds.items()}
        return found | {"p_twin": float(self.probability[kinds["twin"]].mean())}


def measure(self_loops: bool) -> dict[str, list[float]]:
    """One run at demo settings; returns means over every 25 steps."""
    config = SIZES["demo"].override(seed=SEED, self_loops=self_loops)
    model = build_model(config)
    watch = Watch(model.get_submodule("encoder.blocks.0.attention.attention"))
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    data = torch.Generator().manual_seed(config.seed)
    masks = torch.Generator().manual_seed(config.seed + 1)
    kept: dict[str, list[float]] = {"step": []}
    sums: dict[str, float] = {}
    for step in range(1, config.steps + 1):
        tokens, labels = sample_repeated_tokens(config.batch_size, config.length, generator=data)
        output = model(tokens, generator=masks)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(output.values.squeeze(-1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = {"loss": loss.item(), "density": output.attention[0].density.mean().item(), **watch.by_kind(tokens)}
        sums = {name: sums.get(name, 0.0) + value for name, value in seen.items()}
        if step % EVERY == 0:
            kept["step"].append(step)
            for name, value in sums.items():
                kept.setdefault(name, []).append(round(value / EVERY, 5))
            sums = {}
    return kept


def draw(cases: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Pushes above, loss and density below; a column per case."""
    with saved_figure(path, 9.6, 5.4) as figure:
        axes = figure.subplots(2, 2, sharex=True, sharey="row")
        for (title, found), (above, below) in zip(cases.items(), axes.T, strict=True):
            for kind, colour in zip(KINDS, (VERMILLION, BLUE, QUIET), strict=True):
                above.plot(found["step"], found[f"push_{kind}"], color=colour, label=kind)
            total = [sum(found[f"push_{kind}"][i] for kind in KINDS) for i in range(len(found["step"]))]
            above.plot(found["step"], total, color=INK, linestyle="--", label="sum")
            above.axhline(0, color=QUIET, linewidth=0.8)
            above.set(title=title, ylabel="push on p")
            for name, colour, label in (
                ("loss", INK, "loss"),
                ("density", VERMILLION, "density"),
                ("p_twin", GREEN, "mean p of drawn twins"),
            ):
                below.plot(found["step"], found[name], color=colour, label=label)
            below.set(xlabel="step", ylim=(0, 1.03))
        axes[0, 0].legend(loc="lower left", fontsize=8)
        axes[1, 0].legend(loc="lower left", fontsize=8)


def main() -> None:
    """Measures, writes and draws."""
    torch.set_num_threads(1)
    cases = {title: measure(self_loops) for title, self_loops in track(CASES.items(), description="training")}
    write_json(ROOT / "results" / "gate_gradients.json", {"seed": SEED, "cases": cases, "manifest": manifest()})
    draw(cases, ROOT / "results" / "gate_gradients.png")


if __name__ == "__main__":
    run_command(main, "gate_gradients")
