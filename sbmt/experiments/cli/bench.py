"""``sbmt bench``, ``cost`` and ``sample``: commands for time, memory, operations and masks without a trained model."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import Progress

from sbmt.experiments.cli.terminal import publish, say
from sbmt.experiments.files import check_writable
from sbmt.experiments.manifest import manifest
from sbmt.samplers import sample_edges

DENSITY = 0.01
Names = list[str] | None


def bench(
    suite: Annotated[Names, typer.Option(help="suite: attention or fitted; both by default")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="run only a few small cases, in about a minute")] = False,
    json: Annotated[Path | None, typer.Option(help="output file for the results; resumed if it exists")] = None,
) -> None:
    """Compare speed and memory with full attention and, on a GPU, also with FlexAttention.

    In each round, the time is divided by the reference's. The table shows the median ratio; 0.5 means twice as fast.
    """
    from sbmt.experiments.benchmarks.suites import run_suites
    from sbmt.experiments.benchmarks.tables import tables_of

    check_writable(json)
    with Progress() as progress:
        result = run_suites(suite or (), is_quick=quick, device=device, path=json, track=progress.track)
    publish(result, tables_of(result))


def cost(
    attention: Annotated[Names, typer.Option(help="attention mechanism (repeatable); all by default")] = None,
    length: Annotated[list[int] | None, typer.Option(help="sequence length (repeatable); else the paper's")] = None,
    density: Annotated[float | None, typer.Option(help=f"density; {DENSITY} with --length, else the paper's")] = None,
    json: Annotated[Path | None, typer.Option(help="output file for the results")] = None,
) -> None:
    """Count the operations of a forward pass, relative to full attention.

    The models are those of the paper's Table 7: 2 layers, 2 heads of width 32 and 128 clusters. They process a single
    example without gradients. FLOPs cover matrix products only, and a multiply-add counts as 2.
    """
    from sbmt.experiments.costs import Column, cost_report, cost_tables, paper_columns

    check_writable(json)
    columns = [Column(f"n = {n:,}", n, DENSITY) for n in length] if length else paper_columns()
    if density is not None:
        columns = [replace(column, density=density) for column in columns]
    report = cost_report(attention or (), columns)
    publish(report | {"manifest": manifest()}, cost_tables(report), json)


def sample(
    case: Annotated[str, typer.Option(help="one of: collapsed, separated, distant, all")] = "all",
    n_tokens: Annotated[int, typer.Option(help="number of tokens in the plane")] = 48,
    sampler: Annotated[str, typer.Option(help="one of: exact, bernoulli, fastrg")] = "exact",
    seed: Annotated[int, typer.Option(help="random seed of tokens and masks")] = 0,
    output: Annotated[Path, typer.Option(help="output file for the figure")] = Path("sample.png"),
) -> None:
    """Draw masks from block models in the plane: the paper's Figure 3."""
    from sbmt.experiments.plots.placements import PLACEMENTS, draw_placements, place

    placements = [place(name, n_tokens, seed) for name in (PLACEMENTS if case == "all" else [case])]
    generator = torch.Generator().manual_seed(seed)
    edges = [sample_edges(placement.block_model, sampler, generator=generator) for placement in placements]
    draw_placements(placements, edges, output)
    say(f"Figure: {output}")
