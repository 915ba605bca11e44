"""The cost of trained networks on inputs much longer than those in training."""

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sbmt.experiments.benchmarks.rates import scale_rates
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.tables import Table
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger

PACE = Pace(seconds=6.0)


@torch.inference_mode()
def on_longer_inputs(
    models: Mapping[str, TokenTagger], length: int, trained_on: int, reference: str
) -> dict[str, dict[str, Any]]:
    """Times of forward passes on this many tokens, in turn, and edges per query.

    The networks have no positions. One factor lowers all rates of fitted masks until a query has as many edges as on
    the ``trained_on`` tokens of training.
    """
    tokens = torch.randint(models[reference].encoder.vocab_size or 1, (1, length))
    longer = {name: _stretched(model, tokens, trained_on) for name, model in models.items()}
    entries = {name: Entry(partial(lambda model, _: model(tokens), model)) for name, model in longer.items()}
    times = race(entries, PACE, reference=reference)
    return {name: times[name] | {"edges_per_query": _edges_per_query(longer[name], tokens)} for name in longer}


def longer_table(found: dict[str, dict[str, Any]], titles: Mapping[str, str], length: int) -> Table:
    """A row for each network."""
    rows = tuple(
        (titles[name], f"{one['edges_per_query']:,.1f}", f"{one['median']:.0f}", f"{one['ratio']:.2f}")
        for name, one in found.items()
    )
    headings = ("attention", "keys per query", "ms", "× full")
    return Table("longer", f"The same networks on {length:,} tokens: a forward pass", headings, rows)


def _edges_per_query(model: TokenTagger, tokens: Tensor) -> float:
    densities = [attended.density.mean() for attended in model(tokens).attention]
    return float(torch.stack(densities).mean()) * tokens.shape[1]


def _stretched(model: TokenTagger, tokens: Tensor, trained_on: int) -> TokenTagger:
    """A copy of a network whose queries have as many edges among these tokens as among those of training."""
    model = copy.deepcopy(model).eval()
    edges = _edges_per_query(model, tokens[:, :trained_on])
    if layers := [m for m in model.modules() if isinstance(m, SBMAttention) and m.log_rate is not None]:
        scale_rates(layers, lambda: _edges_per_query(model, tokens), edges, largest=0.0)
    return model
