"""Measures masks whose fit ends on inputs from the sparse network itself; writes ``results/sparse_inputs.json``.

In the last third of the steps, all layers use their masks instead of full attention, and the block models of MiniLM are
fitted to each layer's attention under these masks. Everything else is as for halves of 256 tokens and c = 16 in
``pretrained.py``. The script takes about five minutes on one core, and keeps measurements in ``runs/pretrained``.
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
from results.measure.encoder import STEPS
from results.measure.pretrained import summary
from sbmt.attention.inputs import Heads
from sbmt.experiments.sparsification.pretrained import Batch
from sbmt.sparsification import fit
from sbmt.sparsification.convert import fitted_layers

LENGTH, C, SEEDS = 256, 16, 3


def sparse_calls(model: nn.Module, batch: Batch) -> dict[str, list[Heads]]:
    """Records the inputs of every call to each fitted layer while all layers use their masks."""
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
    """Returns the measurements of :func:`results.measure.pretrained.measure` after a fit that ends on sparse inputs."""
    step, dense_calls, is_sparse = count(), fit.seen_calls, range(STEPS * 2 // 3, STEPS)
    with patch.object(fit, "seen_calls", lambda *x: (sparse_calls if next(step) in is_sparse else dense_calls)(*x)):
        return pretrained.measure(pretrained.Case(LENGTH, C, n_kinds=2), seed)  # full attention and fitted masks


def main() -> None:
    """Measures all seeds and writes the result file."""
    seeds = [kept(f"pretrained/sparse-inputs-seed{seed}.json", partial(measure, seed)) for seed in range(SEEDS)]
    write("sparse_inputs", {"n_seeds": SEEDS, "kinds": summary(seeds)})


if __name__ == "__main__":
    run(main, "sparse_inputs")
