"""The cost of trained networks on inputs much longer than those in training."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.sparsification.rates import scale_rates
from sbmt.experiments.tables import Table
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger

PACE = Pace(seconds=6.0)


def on_longer_inputs(
    models: Mapping[str, TokenTagger], length: int, trained_on: int, reference: str
) -> dict[str, dict[str, Any]]:
    """Times of forward passes on this many tokens, in turn, and edges per query.

    Positions repeat. One factor lowers all rates of fitted masks until a query has as many edges as on the
    ``trained_on`` tokens of training.
    """
    tokens = torch.randint(models[reference].encoder.vocab_size or 1, (1, length))
    stretched = {name: _stretched(model, tokens, trained_on) for name, model in models.items()}
    entries = {name: _entry(model, tokens) for name, model in stretched.items()}
    with torch.inference_mode():
        found: dict[str, dict[str, Any]] = race(entries, PACE, reference=reference)
        for name, model in stretched.items():
            found[name]["edges_per_query"] = _edges_per_query(model, tokens)
    return found


def _entry(model: TokenTagger, tokens: Tensor) -> Entry:
    return Entry(lambda _: model(tokens))


def longer_table(found: dict[str, dict[str, Any]], titles: Mapping[str, str], length: int) -> Table:
    """A row for each network."""
    rows = []
    for name, one in found.items():
        rows.append((titles[name], f"{one['edges_per_query']:,.1f}", f"{one['median']:.0f}", f"{one['ratio']:.2f}"))
    headings = ("attention", "keys per query", "ms", "× full")
    return Table("longer", f"The same networks on {length:,} tokens: a forward pass", headings, tuple(rows))


def _edges_per_query(model: TokenTagger, tokens: Tensor) -> float:
    densities = [attended.density.mean() for attended in model(tokens).attention]
    return float(torch.stack(densities).mean()) * tokens.shape[1]


@torch.inference_mode()
def _stretched(model: TokenTagger, tokens: Tensor, trained_on: int) -> TokenTagger:
    """A copy of a network that takes these tokens, possibly more than in training."""
    model = copy.deepcopy(model).eval()
    encoder, length = model.encoder, tokens.shape[1]
    edges = _edges_per_query(model, tokens[:, :trained_on])
    if encoder.position_embedding is not None:
        positions = encoder.position_embedding.weight.repeat(-(-length // trained_on), 1)
        encoder.position_embedding, encoder.max_length = nn.Embedding.from_pretrained(positions), len(positions)
    if layers := [m for m in model.modules() if isinstance(m, SBMAttention) and m.log_rate is not None]:
        scale_rates(layers, lambda: _edges_per_query(model, tokens), edges, largest=0.0)
    return model
