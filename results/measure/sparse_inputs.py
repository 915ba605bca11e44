"""A fit that ends on what layers of the sparse network see; writes ``results/sparse_inputs.json``.

In the last third of the steps, the block models of MiniLM are fitted to the attention that each layer has when all
layers use their masks, instead of full attention. Everything else is as for halves of 256 tokens and c = 16 in
``pretrained.py``. It takes five minutes or so on one core; what was measured is kept in ``runs/pretrained``.
"""

from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from results.measure import pretrained
from results.measure.common import kept, run, write
from results.measure.pretrained import STEPS, Batch, summary
from sbmt.attention.inputs import Heads
from sbmt.sparsification import fit
from sbmt.sparsification.convert import fitted_layers

LENGTH, C, SEEDS = 256, 16, 3


def sparse_calls(model: nn.Module, batch: Batch) -> dict[str, list[Heads]]:
    """The inputs of each call of each fitted layer while all layers use their masks."""
    calls: dict[str, list[Heads]] = defaultdict(list)

    def record(name: str, layer: nn.Module, tokens: Any, options: dict[str, Any]) -> None:
        query, key, value = tokens
        calls[name].append(Heads(query, key, value, options["query_mask"], options["key_mask"]))

    with torch.no_grad(), fit.kept(model.modules(), "training"), ExitStack() as stack:
        for name, layer in fitted_layers(model).items():
            hook = layer.register_forward_pre_hook(partial(record, name), with_kwargs=True)
            stack.callback(hook.remove)
        model.eval()(**batch)
    return calls


def measure(seed: int) -> dict[str, Any]:
    """What :func:`results.measure.pretrained.measure` finds after such a fit."""
    step, dense_calls, is_sparse = count(), fit.seen_calls, range(STEPS * 2 // 3, STEPS)
    with patch.object(fit, "seen_calls", lambda *x: (sparse_calls if next(step) in is_sparse else dense_calls)(*x)):
        return pretrained.measure(LENGTH, C, seed, {})


def main() -> None:
    """Measures and writes."""
    seeds = [kept(f"pretrained/sparse-inputs-seed{seed}.json", partial(measure, seed)) for seed in range(SEEDS)]
    write("sparse_inputs", {"n_seeds": SEEDS, "kinds": summary(seeds)})


if __name__ == "__main__":
    run(main, "sparse_inputs")
