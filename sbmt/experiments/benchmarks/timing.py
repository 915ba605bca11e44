"""Interleaved timing: contestants take turns, so that a slow moment of the machine affects all of them alike."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

Summary = dict[str, Any]  # of milliseconds and ratios, see summarise()


@dataclass(frozen=True)
class Entry:
    """A contestant whose timed call ``run`` receives the result of ``prepare``, which is not timed."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None
    on_gpu: bool = False  # timed by events of the GPU, from the start of its work to the end

    def seconds(self) -> float:
        """Times one call."""
        prepared = self.prepare()
        if self.on_gpu:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            result = self.run(prepared)
            events[1].record()
            events[1].synchronize()
            taken = events[0].elapsed_time(events[1]) / 1e3
        else:
            start = perf_counter()
            result = self.run(prepared)
            taken = perf_counter() - start
        del result, prepared  # memory is freed outside the timed part
        return taken


def race(
    entries: Mapping[str, Entry], *, reference: str, seconds: float, least: int = 5, most: int = 31
) -> dict[str, Summary]:
    """Times contestants in turn, after one warm-up call each, and compares each with the reference.

    A round calls each contestant once, every other round in the opposite order. There are ``least`` to ``most`` rounds,
    and none begins after ``seconds`` except the first ``least``. A ratio is the median, over rounds, of a contestant's
    time over the reference's time in the same round.
    """
    names, times = list(entries), {name: list[float]() for name in entries}
    for name in names:
        entries[name].seconds()
    gc.collect(0)  # garbage is young, and a full collection would take longer than many races
    gc.disable()
    try:
        for turn in range(most):
            if turn >= least and sum(map(sum, times.values())) >= seconds:
                break
            for name in names if turn % 2 == 0 else reversed(names):
                times[name].append(entries[name].seconds())
    finally:
        gc.enable()
    return {name: summarise(times[name], times[reference]) for name in names}


def summarise(seconds: list[float], reference: list[float]) -> Summary:
    """Returns median and quartiles (``low``, ``high``) of times in milliseconds and of ratios."""
    taken, quartiles = np.asarray(seconds), (0.25, 0.5, 0.75)
    times = np.quantile(1e3 * taken, quartiles)
    ratios = np.quantile(taken / np.asarray(reference), quartiles)
    names = ("low", "median", "high", "ratio_low", "ratio", "ratio_high")
    rounded = (float(f"{x:.4g}") for x in (*times, *ratios))  # the rest is noise
    return {"rounds": len(seconds)} | dict(zip(names, rounded, strict=True))
