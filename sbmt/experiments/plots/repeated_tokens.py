"""Figures of runs on repeated tokens: training curves with reference lines, and the masks of one head."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sbmt.experiments.data.repeated_tokens import majority_accuracy, sample_repeated_tokens
from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.style import INK, VERMILLION, saved_figure
from sbmt.experiments.training.run import Run
from sbmt.graph.patterns import sliding_window
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger


@dataclass(frozen=True, eq=False)
class SeenMask:
    """The mask of head 0 in layer 0, for one sequence."""

    expected: Tensor  # edge probabilities (n, n), which are 1 for self-loops and inside a window
    drawn: Tensor  # sampled mask, bool (n, n)
    twins: Tensor  # whether two tokens have the same value, bool (n, n): the pairs that matter for the task
    membership: Tensor | None  # memberships of the queries (n, k); None for attention mechanisms without clusters


@torch.no_grad()
def see_mask(model: TokenTagger, seed: int = 0) -> SeenMask:
    """Runs a model in eval mode on an unseen sequence, sorted by value, and returns the mask of its first head."""
    generator = torch.Generator().manual_seed(seed)
    n_values = len(model.encoder.token_embedding.weight)
    tokens = sample_repeated_tokens(1, n_values, generator=generator)[0].sort(1).values
    twins = tokens[0, :, None] == tokens[0]
    attention = model.get_submodule("encoder.blocks.0.attention.attention")
    inputs: list[Tensor] = []
    with attention.register_forward_pre_hook(lambda _, given: inputs.extend(given)):
        attended = model.eval()(tokens, generator=generator, return_edges=True).attention[0]
    drawn = attended.edges.to_dense()[0, 0]
    if not isinstance(attention, SBMAttention):  # every pair has the same probability
        return SeenMask(attended.expected_density[0, 0].expand_as(drawn), drawn, twins, None)
    block_model = attention.block_model(*inputs[:2])
    expected = block_model.expected_mask()[0, 0]
    if attention.window is not None:
        expected = expected.masked_fill(sliding_window(attended.edges.shape, attention.window).to_dense()[0, 0], 1.0)
    return SeenMask(expected, drawn, twins, block_model.query_membership[0, 0])


def draw_inspection(run: Run, path: Path, seed: int = 0) -> None:
    """Writes a figure of the run's training curves, above the mask and the memberships for one unseen sequence."""
    seen = see_mask(run.model, seed)
    with saved_figure(path, 11.0, 6.6) as figure:
        above, below = figure.subplots(2, 3)
        for ax, name in zip(above, ("loss", "accuracy", "density"), strict=True):
            values = np.asarray(run.history[name])
            width = min(25, len(values))  # number of steps averaged in each point of a curve
            smooth = np.convolve(values, np.ones(width) / width, mode="valid")
            ax.plot(np.arange(width, len(values) + 1), smooth, color=VERMILLION)
            ax.set(xlabel="step", title=f"{name} of the training batch", xlim=(0, None))
        above[1].axhline(majority_accuracy(run.config.length), color=INK, linestyle=":", label="majority guess")
        above[1].legend(loc="lower right", fontsize=8)
        mean, density = (float(mask.float().mean()) for mask in (seen.expected, seen.drawn))
        plot_mask(seen.expected, below[0], title=f"edge probability, mean {mean:.3f}")
        plot_mask(seen.drawn, below[1], title=f"one draw, density {density:.3f}")
        if seen.membership is None:
            below[2].axis("off")
        else:
            plot_mask(seen.membership, below[2], title="memberships of the queries")
            below[2].set(xlabel="cluster", ylabel="query", aspect="auto")
        figure.suptitle("Tokens of the masks are sorted by value", fontsize=9, fontweight="normal")
