"""``sbmt sample``: masks drawn from block models in the plane."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from sbmt.errors import check_seed, choose
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.tables import Table
from sbmt.samplers import SAMPLERS, sample_edges


def sample(
    case: Annotated[str, typer.Option(help="collapsed, separated, distant, or all")] = "all",
    n_tokens: Annotated[int, typer.Option(help="tokens in the plane")] = 48,
    sampler: Annotated[str, typer.Option(help="exact, bernoulli or fastrg")] = "exact",
    seed: Annotated[int, typer.Option(help="seed of the tokens and the draw")] = 0,
    output: Annotated[Path, typer.Option(help="where the figure goes")] = Path("sample.png"),
) -> None:
    """Draw masks from block models in the plane: the paper's Figure 3.

    Tokens and clusters close together give a dense mask, separated groups a block-diagonal one, clusters far from
    all tokens a sparse one.
    """
    from sbmt.experiments.plots.placements import PLACEMENTS, draw_placements, place
    from sbmt.experiments.plots.save import check_figure

    check_figure(output)
    check_seed(seed)
    choose("sampler", sampler, SAMPLERS)
    cases = list(PLACEMENTS) if case == "all" else [case]
    placements = [place(name, n_tokens, seed) for name in cases]
    generator = torch.Generator().manual_seed(seed)
    edges = [sample_edges(p.block_model, sampler, generator=generator) for p in placements]
    headings = "case", "tokens", "clusters", "expected density", "drawn density", "edges"
    rows = []
    for placement, drawn in zip(placements, edges, strict=True):
        model = placement.block_model
        densities = (f"{density.item():.4f}" for density in (model.expected_density(), drawn.density()))
        rows.append((placement.name, str(n_tokens), str(model.n_clusters), *densities, str(drawn.n_edges)))
    console = Console(markup=False)
    print_table(console, Table("sample", f"One draw by the {sampler} sampler", headings, tuple(rows)))
    draw_placements(placements, edges, output)
    console.print(f"Figure: {output}")
