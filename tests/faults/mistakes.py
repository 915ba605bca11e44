"""One or two arguments of a public call replaced by something else: an answer, or the library's error, and no other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from sbmt import SbmtError
from tests.faults.calls import CALLS

OTHERS = {
    **{repr(x): x for x in (None, True, 0, -1, 2.5, float("nan"), float("inf"), -float("inf"), 1j, "", "sbm", b"x")},
    **{
        repr(x): x
        for x in (1 << 63, -(1 << 63) - 1, 10**400, (), [], {}, (2, 2, 5, 5), [1, "x"], {"a": 1}, "✓", 1e-300)
    },
    "object": object(),
    "lambda": lambda *_, **__: None,
    "a type": int,
    "NumPy array": np.ones((2, 2, 5, 4)),
    "NumPy integer": np.int64(3),
    "NumPy float": np.float32(0.5),
    "tensor": torch.ones(2, 2, 5, 4),
    "scalar tensor": torch.tensor(1.0),
    "no numbers": torch.empty(0),
    "a module": torch.nn.Linear(1, 1),
    "generator": torch.Generator(),
}
"""What may stand in the place of any argument."""

CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "of int64": lambda x: x.long(),
    "of int32": lambda x: x.int(),
    "of bool": lambda x: x.bool(),
    "of float64": lambda x: x.double(),
    "of bfloat16": lambda x: x.bfloat16(),
    "of complex64": lambda x: x.to(torch.complex64),
    "negative": lambda x: -1 - x if x.dtype != torch.bool else ~x,
    "large": lambda x: x * 1000 if x.dtype != torch.bool else ~x,
    "with NaN": lambda x: x.index_fill(-1, torch.tensor([0]), torch.nan) if x.is_floating_point() and x.dim() else x,
    "with infinity": lambda x: (
        x.index_fill(-1, torch.tensor([0]), torch.inf) if x.is_floating_point() and x.dim() else x
    ),
    "without a dimension": lambda x: x[0] if x.dim() else x,
    "with one more": lambda x: x[None],
    "turned round": lambda x: x.permute(*range(x.dim())[::-1]),
    "cut in front": lambda x: x[1:] if x.dim() else x,
    "cut at the end": lambda x: x[..., :-1] if x.dim() else x,
    "empty": lambda x: x[:0] if x.dim() else x,
    "empty inside": lambda x: x[..., :0] if x.dim() else x,
    "twice": lambda x: torch.cat([x, x]) if x.dim() else x,
    "on the meta device": lambda x: x.to("meta"),
    "as a list": lambda x: x.tolist(),
    "as an array": lambda x: x.numpy(),
    "flat": lambda x: x.flatten(),
    "a parameter": lambda x: torch.nn.Parameter(x.clone()) if x.is_floating_point() else x,
}
"""What may become of a tensor."""

ARRAYS = {"NumPy array", "tensor", "no numbers"}
ALONE = {("from_dense", "mask"), ("from_cells", "cells")} | {
    (call, name) for call in ("sliding_window", "self_loops") for name in ("query_mask", "key_mask")
}
"""Tensors that no other tells where they should be."""


@dataclass(frozen=True)
class MistakeCase:
    """A call, and what replaces which arguments."""

    call: str
    replaced: tuple[tuple[str, str], ...]

    def arguments(self):
        """The call's arguments, with the replacements that are mistakes."""
        arguments = dict(CALLS[self.call][1])
        for name, what in self.replaced:
            valid = arguments[name]
            if what in CHANGES:
                is_told = (self.call, name) not in ALONE or what != "on the meta device"
                arguments[name] = CHANGES[what](valid) if isinstance(valid, torch.Tensor) and is_told else valid
            elif isinstance(valid, bool) and what in ARRAYS:
                continue  # Python itself refuses to take an array for true or false
            elif name != "loss" or not callable(OTHERS[what]):  # what a user's own loss raises is its own affair
                arguments[name] = OTHERS[what]
        return arguments


def mistake_cases():
    """Any call, one of its arguments or two."""
    changes = st.sampled_from([*OTHERS, *CHANGES])

    def of_call(call):
        names = st.sampled_from(list(CALLS[call][1]))
        pairs = st.lists(st.tuples(names, changes), min_size=1, max_size=2, unique_by=lambda pair: pair[0])
        return st.builds(MistakeCase, call=st.just(call), replaced=pairs.map(tuple))

    return st.sampled_from(list(CALLS)).flatmap(of_call)


def check_mistake(case):
    """Whatever comes back, nothing is raised but SbmtError."""
    call, _ = CALLS[case.call]
    try:
        call(**case.arguments())
    except SbmtError as error:
        assert str(error).startswith("expected ")
        return "refused"
    return "answered"
