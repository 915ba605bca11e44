"""Times trained networks on inputs much longer than those in training."""

import copy
from collections.abc import Mapping

import torch
from rich.table import Table
from torch import Tensor

from sbmt.experiments.benchmarks.cases import LOG_RATES, bisect
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger


@torch.inference_mode()
def longer_table(models: Mapping[str, TokenTagger], n: int, trained_on: int) -> Table:
    """Times forward passes of networks without positions on ``n`` tokens, in turn, relative to the first network.

    The rates of fitted masks are multiplied by a factor, so that queries keep the number of edges of training.
    """
    reference, first = next(iter(models.items()))
    tokens = torch.randint(first.encoder.vocab_size or 1, (1, n))
    longer = {title: _stretched(model, tokens, trained_on) for title, model in models.items()}
    entries = {title: Entry(model, prepare=lambda: tokens) for title, model in longer.items()}
    times = race(entries, Pace(6.0), reference=reference)
    table = Table(
        "attention", "keys per query", "ms", "× full", title=f"The same networks on {n:,} tokens: a forward pass"
    )
    for title, found in times.items():
        keys = _edges_per_query(longer[title], tokens)
        table.add_row(title, f"{keys:,.1f}", f"{found['median']:.0f}", f"{found['ratio']:.2f}")
    return table


def _edges_per_query(model: TokenTagger, tokens: Tensor) -> float:
    densities = [attended.density.mean() for attended in model(tokens).attention]
    return float(torch.stack(densities).mean()) * tokens.shape[1]


def _stretched(model: TokenTagger, tokens: Tensor, trained_on: int) -> TokenTagger:
    model = copy.deepcopy(model).eval()
    starts = [m.log_start for m in model.modules() if isinstance(m, SBMAttention) and m.log_rate is not None]

    def edges_at(start: float) -> float:
        for of_layer in starts:
            of_layer.fill_(start)
        return _edges_per_query(model, tokens)

    if starts:
        bisect(edges_at, _edges_per_query(model, tokens[:, :trained_on]), *LOG_RATES, n_steps=12)
    return model
