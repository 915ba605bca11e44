"""Checks of one call: shapes, types, densities, edges, errors, devices."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
import torch
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.testing.subject import Subject, Tokens, is_close


def check_shapes(subject: Subject) -> None:
    """Values have the shape of the queries, densities are one number per example and head."""
    for tokens in (subject.tokens(), subject.tokens(1, 1), subject.padded_tokens()):
        _check_shape(subject, subject.attend(tokens), tokens)
    few, many = subject.tokens(2, 2), subject.tokens(2)
    tokens = Tokens(few.query, many.key, many.value)
    try:
        out = subject.attend(tokens)
    except SbmtError:
        return  # a self-attention may refuse other keys than queries
    _check_shape(subject, out, tokens)


def _check_shape(subject: Subject, out: Any, tokens: Tokens) -> None:
    expected = {"values": tuple(tokens.query.shape)}
    expected |= {name: tuple(tokens.query.shape[:2]) for name in ("density", "expected_density")}
    for name, shape in expected.items():
        given = getattr(out, name, None)
        got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        if got != shape:
            raise SbmtError(f"{name} of shape {shape}", got, f"for queries {tuple(tokens.query.shape)}")


def check_dtypes(subject: Subject) -> None:
    """Values have the type of the inputs, in float32 and in float64."""
    for dtype in (torch.float32, torch.float64):
        module = subject.copy().to(dtype)
        out = subject.attend(subject.padded_tokens(dtype=dtype), module=module)
        if out.values.dtype != dtype:
            raise SbmtError(f"values of type {dtype}", out.values.dtype, "convert them back to the inputs' type")
        if not (out.density.is_floating_point() and out.expected_density.is_floating_point()):
            got = f"{out.density.dtype} and {out.expected_density.dtype}"
            raise SbmtError("densities of a floating-point type", got, "divide by the number of real pairs")


def check_density(subject: Subject) -> None:
    """Densities are in [0, 1], count real pairs only, and are 0 where there is none."""
    tokens = subject.padded_tokens()
    mask = tokens.is_real.clone()
    mask[2] = False
    for seed in range(4):
        out = subject.attend(tokens._replace(mask=mask), seed, return_edges=True)
        for name in ("density", "expected_density"):
            density = getattr(out, name)
            if not bool(((density >= 0) & (density <= 1)).all()):
                raise SbmtError(f"{name} in [0, 1]", density.tolist(), "divide by the number of real pairs")
            if bool((density[2] != 0).any()):
                raise SbmtError(f"{name} 0 for an example of padding", density[2].tolist(), "take 0/0 as 0")
        counted = _count(out, mask)
        if counted is not None and not is_close(out.density.double(), counted, 1e-5):
            got = f"{out.density.tolist()} for {counted.tolist()}"
            raise SbmtError("density as the share of real pairs that are edges", got, "leave padded pairs out")


def _count(out: Any, mask: Tensor) -> Tensor | None:
    """Edges over real pairs, both counted here."""
    if out.edges is None:
        return None
    n_pairs = mask.sum(1).square().clamp(min=1)[:, None]
    return out.edges.to_dense().sum((2, 3)).double() / n_pairs


def check_edges(subject: Subject) -> None:
    """Edges come where they are asked for, join real tokens, and are all that a query reads."""
    tokens = subject.padded_tokens()
    out = subject.attend(tokens, return_edges=True)
    if out.edges is None or subject.attend(tokens).edges is not None:
        got = "None" if out.edges is None else "edges that nobody asked for"
        raise SbmtError("edges with return_edges=True and None without", got, "list all real pairs if all are read")
    dense = out.edges.to_dense()
    shape = (*tokens.query.shape[:3], tokens.key.shape[2])
    if tuple(dense.shape) != shape or dense.dtype != torch.bool:
        raise SbmtError(f"edges.to_dense() as bool {shape}", f"{dense.dtype} {tuple(dense.shape)}", "rows are queries")
    is_pair = tokens.is_real[:, None, :, None] & tokens.is_real[:, None, None, :]
    if bool((dense & ~is_pair).any()):
        raise SbmtError("edges between real tokens", "an edge at padding", "mask the pairs first")
    if not is_close(subject.attend(tokens).values, out.values):
        raise SbmtError("the same values with and without return_edges", "others", "draw the same numbers in both")
    for j in range(shape[3]):
        value = tokens.value.clone()
        value[:, :, j] += 10.0
        changed = subject.attend(tokens._replace(value=value)).values
        others = ~dense[..., j]
        if not is_close(changed[others], out.values[others]):
            raise SbmtError("queries that read along their edges", f"one that reads key {j} without", "list every edge")


def check_errors(subject: Subject) -> None:
    """Inputs that do not fit together raise SbmtError."""
    query, key, value = subject.tokens(2)[:3]
    real = torch.ones(2, subject.n_tokens, dtype=torch.bool, device=subject.device)
    wrong = {
        "three dimensions": (query[0], key[0], value[0], None),
        "fewer values than keys": (query, key, value[:, :, 1:], None),
        "keys wider than queries": (query, torch.cat([key, key], -1), value, None),
        "other batch sizes": (query, key[:1].expand(3, -1, -1, -1), value[:1].expand(3, -1, -1, -1), None),
        "integers": (query.long(), key.long(), value.long(), None),
        "a mask that is too short": (query, key, value, real[:, 1:]),
        "a mask of numbers": (query, key, value, real.float()),
    }
    with _own_errors():
        for what, tokens in wrong.items():
            try:
                subject.attend(Tokens(*tokens))
            except SbmtError:
                continue
            except Exception as error:
                came = f"{type(error).__name__}: {error}"
            else:
                came = "an output"
            raise SbmtError(f"SbmtError on {what}", came, "check the inputs before anything is computed")


@contextmanager
def _own_errors() -> Iterator[None]:
    """Shape checkers that tests may have switched on stand aside, so that the module's own errors are met."""
    was_off = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", was_off)


def check_devices(subject: Subject) -> None:
    """Outputs are where the inputs are, on the CPU and on a CUDA device if there is one."""
    found = {}
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        tokens = subject.padded_tokens().changed(lambda t, device=device: t.to(device))  # type: ignore[misc]
        out = subject.attend(tokens, module=subject.copy().to(device))
        for name in ("values", "density", "expected_density"):
            where = getattr(out, name).device.type
            if where != device:
                raise SbmtError(f"{name} on {device}", where, "make new tensors on the device of the query")
        found[device] = out.values.cpu()
    if len(found) == 2 and not subject.is_random and not is_close(found["cpu"], found["cuda"], 5e-3):
        raise SbmtError("the same values on both devices", "others", "compare the two step by step")
    if len(found) == 2 and not bool(found["cuda"].isfinite().all()):
        raise SbmtError("finite values on the CUDA device", "NaN or infinity", "compare the two step by step")
