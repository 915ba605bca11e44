"""Times trained networks on inputs much longer than those in training."""

import copy
from collections.abc import Mapping
from functools import partial
from math import log

import torch
from rich.table import Table

from sbmt.experiments.benchmarks.machine import peak_of
from sbmt.experiments.benchmarks.timing import Entry, race
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger


@torch.inference_mode()
def longer_table(models: Mapping[str, TokenTagger], n: int, trained_on: int) -> Table:
    """Measures the memory of networks without positions on ``n`` tokens, and their time relative to the first network.

    The rates of fitted masks are divided by the growth in length, so that queries keep their expected number of draws.
    """
    reference, first = next(iter(models.items()))
    tokens = torch.randint(first.encoder.vocab_size or 1, (1, n))
    longer = {title: copy.deepcopy(model).eval() for title, model in models.items()}
    for layer in (module for model in longer.values() for module in model.modules()):
        if isinstance(layer, SBMAttention) and layer.log_rate is not None:
            layer.log_start -= log(n / trained_on)
    entries = {title: Entry(model, lambda: tokens) for title, model in longer.items()}
    times = race(entries, reference=reference, seconds=6.0)
    headings = "attention", "keys per query", "ms", "× full", "MiB"
    table = Table(*headings, title=f"The same networks on {n:,} tokens: a forward pass")
    for title, found in times.items():
        keys = n * torch.stack([attended.density.mean() for attended in longer[title](tokens).attention]).mean()
        measures = f"{found['median']:.0f}", f"{found['ratio']:.2f}", f"{peak_of(partial(longer[title], tokens)):.0f}"
        table.add_row(title, f"{keys:,.1f}", *measures)
    return table
