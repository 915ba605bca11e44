"""One or two arguments of a public call replaced by something else: an answer, or the library's error, and no other."""

import numpy as np
import torch

from sbmt import SbmtError
from tests.faults.calls import CALLS

ANYTHING = (
    None, True, 0, -1, 2.5, float("nan"), float("inf"), -float("inf"), 1j, "", "sbm", b"x", 1 << 63, -(1 << 63) - 1,
    10**400, (), [], {}, (2, 2, 5, 5), [1, "x"], {"a": 1}, "✓", 1e-300, object, int, np.int64(3), np.float32(0.5),
)  # fmt: skip
OTHERS = {repr(x)[:30]: x for x in ANYTHING} | {
    "lambda": lambda *_, **__: None,
    "NumPy array": np.ones((2, 2, 5, 4)),
    "tensor": torch.ones(2, 2, 5, 4),
    "scalar tensor": torch.tensor(1.0),
    "no numbers": torch.empty(0),
    "a module": torch.nn.Linear(1, 1),
    "generator": torch.Generator(),
}
"""What may stand in the place of any argument."""


def _spoilt(x, number):
    return x.index_fill(-1, torch.tensor([0]), number) if x.is_floating_point() and x.dim() else x


CHANGES = {
    **{f"of {name}": lambda x, name=name: x.to(getattr(torch, name)) for name in
       ("int64", "int32", "bool", "float64", "bfloat16", "complex64")},
    "negative": lambda x: -1 - x if x.dtype != torch.bool else ~x,
    "large": lambda x: x * 1000 if x.dtype != torch.bool else ~x,
    "with NaN": lambda x: _spoilt(x, torch.nan),
    "with infinity": lambda x: _spoilt(x, torch.inf),
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
}  # fmt: skip
"""What may become of a tensor."""

ARRAYS = ("NumPy array", "tensor", "no numbers")
ALONE = {("from_dense", "mask"), ("from_cells", "cells")} | {
    (call, name) for call in ("sliding_window", "self_loops") for name in ("query_mask", "key_mask")
}
"""Tensors that no other tensor tells which device they should be on."""


def replacement(call, name, what):
    """What stands in the place of a call's argument; the argument itself where the replacement is no mistake."""
    valid = CALLS[call][1][name]
    if what in CHANGES:
        is_told = (call, name) not in ALONE or what != "on the meta device"
        return CHANGES[what](valid) if isinstance(valid, torch.Tensor) and is_told else valid
    if isinstance(valid, bool) and what in ARRAYS:
        return valid  # Python itself refuses to take an array for true or false
    if name == "loss" and callable(OTHERS[what]):
        return valid  # what a user's own loss raises is up to the user
    return OTHERS[what]


def is_refused(call, replaced):
    """Whether a call with replaced arguments raises SbmtError; any other error goes on."""
    function, arguments = CALLS[call]
    try:
        function(**arguments | {name: replacement(call, name, what) for name, what in replaced.items()})
    except SbmtError as error:
        assert str(error).startswith("expected ")
        return True
    return False


def check_mistake(case):
    """Whatever comes back, nothing is raised but SbmtError."""
    call = case.pick("call", tuple(CALLS))
    names = tuple(CALLS[call][1])
    replaced = {}
    for number in range(case.pick("mistakes", (1, 2))):
        replaced[case.pick(f"argument {number}", names)] = case.pick(f"becomes {number}", (*OTHERS, *CHANGES))
    return "refused" if is_refused(call, replaced) else "answered"
