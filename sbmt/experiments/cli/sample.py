"""``sbmt sample``: masks drawn from block models in the plane."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from sbmt.errors import check_seed, choose
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

    check_seed(seed)
    choose("sampler", sampler, SAMPLERS)
    cases = list(PLACEMENTS) if case == "all" else [case]
    placements = [place(name, n_tokens, seed) for name in cases]
    generator = torch.Generator().manual_seed(seed)
    edges = [sample_edges(p.block_model, sampler, generator=generator) for p in placements]
    table = Table(title=f"One draw by the {sampler} sampler")
    for heading in ("case", "tokens", "clusters", "expected density", "drawn density", "edges"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for placement, drawn in zip(placements, edges, strict=True):
        table.add_row(
            placement.name,
            str(n_tokens),
            str(placement.block_model.n_clusters),
            f"{placement.block_model.expected_density().item():.4f}",
            f"{drawn.density().item():.4f}",
            str(drawn.n_edges),
        )
    console = Console(markup=False)
    console.print(table)
    draw_placements(placements, edges, output)
    console.print(f"Figure: {output}")
