"""Measures the time of fitted masks in a sentence encoder's attention; writes ``results/pretrained_time.json``.

One layer of MiniLM, with 12 heads of width 32, receives the queries, keys and values of reviews of 256 tokens, joined
into longer texts. Rates are divided by the increase in length, so that the number of keys per query stays the same.
"""

from collections.abc import Callable
from math import log
from time import process_time
from typing import Any

import torch
from rich.progress import track
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from results.measure.common import run, write
from results.measure.encoder import fitted, texts_of
from sbmt.experiments.benchmarks.machine import machine_manifest
from sbmt.experiments.benchmarks.timing import summarise
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.fit import seen_heads

SHORT, LENGTHS = 256, (256, 512, 1024, 2048, 4096)
EDGES_PER_QUERY, STEPS = 16, 30
ROUNDS = 60  # number of rounds at the shortest length; longer texts have fewer rounds


def seconds(attend: Callable[..., Any], tokens: list[Tensor]) -> float:
    """Returns the processor time of a call in seconds, which excludes other programs."""
    start = process_time()
    attend(*tokens)
    return process_time() - start


def main() -> None:
    """Times all lengths and writes the result file."""
    _, others = texts_of(SHORT, STEPS, 1)
    sparse = fitted(others, 0, STEPS, edges_per_query=float(EDGES_PER_QUERY))
    name, layer = list(fitted_layers(sparse.eval()).items())[2]
    seen = [seen_heads(sparse, batch)[name] for batch in others[: max(LENGTHS) // 1024]]
    found: dict[str, Any] = {}
    start = layer.log_start.clone()
    for n in track(LENGTHS, "lengths"):
        parts = (torch.cat([heads[i] for heads in seen]) for i in range(3))  # reviews heads 256 d
        tokens = [x.transpose(0, 1).flatten(1, 2)[None, :, :n].contiguous() for x in parts]  # 1 heads n d
        layer.log_start.copy_(start - log(n / SHORT))
        with torch.no_grad():
            keys = float(layer(*tokens).density.mean() * n)
            times = [
                (seconds(scaled_dot_product_attention, tokens), seconds(layer, tokens))
                for _ in range(max(7, ROUNDS * SHORT // n))
            ]
        full, mine = map(list, zip(*times[1:], strict=True))
        found[str(n)] = {"full": summarise(full, full), "fitted": summarise(mine, full), "keys": keys}
    write("pretrained_time", {"edges_per_query": EDGES_PER_QUERY, "lengths": found}, machine_manifest())


if __name__ == "__main__":
    run(main, "pretrained_time")
