"""What trained networks cost on inputs much longer than those that they were trained on."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from math import log
from typing import Any

import torch
from torch import nn

from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.tables import Table
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger

PACE = Pace(seconds=6.0)


def on_longer_inputs(models: Mapping[str, TokenTagger], length: int, reference: str) -> dict[str, dict[str, Any]]:
    """Times of a forward pass on so many tokens, in turn, and edges per query.

    Positions repeat. Rates of fitted masks are lowered so that a query keeps the number of edges that it has on inputs
    of the length of training.
    """
    stretched = {name: _stretched(model, length) for name, model in models.items()}
    tokens = torch.randint(next(iter(stretched.values())).encoder.vocab_size or 1, (1, length))
    calls = {name: partial(model, tokens) for name, model in stretched.items()}
    with torch.inference_mode():
        found: dict[str, dict[str, Any]] = race({x: _entry(calls[x]) for x in calls}, PACE, reference=reference)
        for name, call in calls.items():
            density = torch.stack([attended.density.mean() for attended in call().attention]).mean()
            found[name]["edges_per_query"] = float(density) * length
    return found


def _entry(call: Callable[[], object]) -> Entry:
    return Entry(lambda _: call())


def longer_table(found: dict[str, dict[str, Any]], titles: Mapping[str, str], length: int) -> Table:
    """A row for each network."""
    rows = []
    for name, one in found.items():
        rows.append((titles[name], f"{one['edges_per_query']:,.1f}", f"{one['median']:.0f}", f"{one['ratio']:.2f}"))
    headings = ("attention", "keys per query", "ms", "× full")
    return Table("longer", f"The same networks on {length:,} tokens: a forward pass", headings, tuple(rows))


def _stretched(model: TokenTagger, length: int) -> TokenTagger:
    """A copy of a network for longer inputs."""
    model = copy.deepcopy(model).eval()
    encoder = model.encoder
    if encoder.position_embedding is not None:
        n, repeats = encoder.position_embedding.num_embeddings, -(-length // encoder.position_embedding.num_embeddings)
        encoder.position_embedding = nn.Embedding.from_pretrained(encoder.position_embedding.weight.repeat(repeats, 1))
        encoder.max_length = n * repeats
        for layer in model.modules():
            if isinstance(layer, SBMAttention) and layer.log_rate is not None:
                layer.log_start -= log(length / n)
    return model
