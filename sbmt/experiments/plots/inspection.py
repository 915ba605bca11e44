"""What one trained model does with one sequence."""

from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.plots.curves import plot_curve, plot_majority
from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.save import save_figure
from sbmt.experiments.plots.style import VERMILLION, use_style
from sbmt.experiments.training.run import Run
from sbmt.graph.patterns import sliding_window
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger


@dataclass(frozen=True, eq=False)
class SeenMask:
    """Layer 0, head 0 on one sequence.

    Attributes:
        expected: Edge probabilities ``(n, n)``, 1 where a window or a self-loop makes an edge certain.
        drawn: One draw, bool ``(n, n)``.
        membership: Query memberships ``(n, k)``, None for attentions without clusters.
    """

    expected: Tensor
    drawn: Tensor
    membership: Tensor | None


def see_mask(model: TokenTagger, seed: int = 0) -> SeenMask:
    """Runs a model once on an unseen sequence, sorted by value, and returns the mask of its first head."""
    generator = torch.Generator().manual_seed(seed)
    n_values = model.encoder.token_embedding.num_embeddings
    tokens = sample_repeated_tokens(1, n_values, generator=generator)[0].sort(1).values
    attention = model.get_submodule("encoder.blocks.0.attention.attention")
    inputs: list[tuple[Tensor, ...]] = []
    handle = attention.register_forward_pre_hook(lambda _, given: inputs.append(given))
    was_training = model.training
    try:
        with torch.no_grad():
            attended = model.eval()(tokens, generator=generator, return_edges=True).attention[0]
            drawn = attended.edges.to_dense()[0, 0]
            if not isinstance(attention, SBMAttention):  # every pair has the same probability
                return SeenMask(attended.expected_density[0, 0].expand_as(drawn), drawn, None)
            block_model = attention.block_model(*inputs[0][:2])
            expected = block_model.expected_mask()[0, 0]
            if attention.window is not None:
                certain = sliding_window(attended.edges.shape, attention.window).to_dense()[0, 0]
                expected = expected.masked_fill(certain, 1.0)
            return SeenMask(expected, drawn, block_model.query_membership[0, 0])
    finally:
        handle.remove()
        model.train(was_training)


def draw_inspection(run: Run, path: Path, seed: int = 0) -> None:
    """Writes a figure: the run's curves above, the mask of one unseen sequence and its memberships below."""
    seen = see_mask(run.model, seed)
    with use_style():
        figure = Figure(figsize=(11, 6.6), layout="constrained")
        axes = figure.subplots(2, 3)
        for ax, name in zip(axes[0], ("loss", "accuracy", "density"), strict=True):
            plot_curve(ax, run, name, VERMILLION)
        plot_majority(axes[0, 1], run.config.length)
        axes[0, 1].legend(loc="lower right", fontsize=8)
        mean, density = (float(mask.float().mean()) for mask in (seen.expected, seen.drawn))
        plot_mask(seen.expected, axes[1, 0], title=f"edge probability, mean {mean:.3f}")
        plot_mask(seen.drawn, axes[1, 1], title=f"one draw, density {density:.3f}")
        if seen.membership is None:
            axes[1, 2].axis("off")
        else:
            plot_mask(seen.membership, axes[1, 2], title="memberships of the queries")
            axes[1, 2].set(xlabel="cluster", ylabel="query", aspect="auto")
        figure.suptitle("Tokens of the masks are sorted by value", fontsize=9, fontweight="normal")
        save_figure(figure, path)
