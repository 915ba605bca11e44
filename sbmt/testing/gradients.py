"""Checks of what comes back, and of inputs with nothing to attend."""

from typing import Any

import torch
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.testing.subject import Subject, Tokens


def _leaves(tokens: Tokens) -> Tokens:
    query, key, value = (t.clone().requires_grad_() for t in tokens[:3])
    return Tokens(query, key, value, tokens.mask)


def _backward(out: Any, *, from_densities: bool) -> None:
    """Backpropagates a weighted sum of the values, all weights different, and the sum of the densities."""
    generator = torch.Generator().manual_seed(5)
    loss = (out.values * torch.randn(out.values.shape, generator=generator).to(out.values)).sum()
    if from_densities:
        loss = loss + out.density.sum() + out.expected_density.sum()
    if loss.requires_grad:
        loss.backward()


def _check_finite(subject: Subject, tokens: Tokens, what: str, *, is_zero: Tensor | None = None) -> None:
    """Finite values and gradients, and values 0 where nothing is attended."""
    for is_training in (False, True):
        module, leaves = subject.copy().train(is_training), _leaves(tokens)
        for seed in range(8):
            out = subject.attend(leaves, seed, module=module, return_edges=True)
            for name in ("values", "density", "expected_density"):
                if not bool(getattr(out, name).isfinite().all()):
                    raise SbmtError(f"finite {name} for {what}", "NaN or infinity", "let an empty row give zeros")
            empty = torch.zeros(out.values.shape[:3], dtype=torch.bool, device=out.values.device)
            if out.edges is not None:
                empty = ~out.edges.to_dense().any(-1)
            if is_zero is not None:
                empty = empty | is_zero
            if not bool((out.values[empty] == 0).all()):
                raise SbmtError(f"zeros for {what} where nothing is attended", "other numbers", "zero such rows")
            _backward(out, from_densities=True)
        named = [*zip(("query", "key", "value"), leaves[:3], strict=True), *module.named_parameters()]
        for name, tensor in named:
            if tensor.grad is not None and not bool(tensor.grad.isfinite().all()):
                do = "replace what is masked before it is divided or exponentiated, not after"
                raise SbmtError(f"finite gradients of {name} for {what}", "NaN or infinity", do)


def check_empty_rows(subject: Subject) -> None:
    """Queries without an edge give zeros with finite gradients, however few are drawn."""
    _check_finite(subject, subject.tokens(), "tokens without padding")
    _check_finite(subject, subject.padded_tokens(), "padded tokens")


def check_all_padding(subject: Subject) -> None:
    """Examples, and batches, that are all padding give zeros with finite gradients."""
    tokens = subject.padded_tokens()
    for n_real in (1, 0):
        mask = tokens.is_real.clone()
        mask[n_real:] = False
        is_zero = ~mask.any(1)[:, None, None]
        _check_finite(subject, tokens._replace(mask=mask), "examples of padding", is_zero=is_zero)


def check_single_token(subject: Subject) -> None:
    """A sequence of one token gives finite values and gradients."""
    _check_finite(subject, subject.tokens(2, 1), "a single token")


def check_gradient_flow(subject: Subject) -> None:
    """Gradients reach the value of every attended key, and queries or keys, and no padded token."""
    tokens = _leaves(subject.padded_tokens())
    out = subject.attend(tokens, return_edges=True)
    _backward(out, from_densities=False)
    value, *others = (torch.zeros_like(t) if t.grad is None else t.grad for t in (tokens[2], *tokens[:2]))
    is_real = tokens.is_real[:, None, None].expand(*value.shape[:3], -1)
    is_attended = is_real if out.edges is None else out.edges.to_dense()  # batch heads queries keys
    if not bool((value[is_attended.any(2)] != 0).any(-1).all()):
        raise SbmtError("a gradient to the value of every attended key", "zero or none", "do not detach the values")
    is_choice = is_attended.sum(-1) > 1  # a single key has weight 1
    if bool(is_choice.any()) and not any(bool((gradient != 0).any()) for gradient in others):
        raise SbmtError("a gradient to queries or keys", "zero or none", "do not detach the scores")
    for name, gradient in zip(("value", "query", "key"), (value, *others), strict=True):
        if bool((gradient.transpose(1, 2)[~tokens.is_real] != 0).any()):
            raise SbmtError(f"no gradient to padded tokens of {name}", "a gradient", "mask before summing over tokens")


def check_gradients(subject: Subject) -> None:
    """Gradients are those of finite differences in float64: to the values, and to all inputs if nothing is random.

    Where masks are drawn, gradients to queries and keys may be estimates of another quantity than one draw's.
    """
    module = subject.copy().double()
    tokens = subject.tokens(1, min(4, subject.n_tokens), dtype=torch.float64)
    mask = torch.ones(1, tokens.query.shape[2], dtype=torch.bool, device=subject.device)
    mask[:, -1] = False
    tokens = _leaves(tokens._replace(mask=mask))
    fixed = tokens if not subject.is_random else tokens._replace(query=tokens.query.detach(), key=tokens.key.detach())

    def values(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return subject.attend(Tokens(query, key, value, mask), 7, module=module).values

    if not values(*fixed[:3]).requires_grad:
        raise SbmtError("values with a gradient", "values without", "do not detach them")
    try:
        torch.autograd.gradcheck(values, fixed[:3])
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise SbmtError("gradients as by finite differences", reason, "check the backward pass") from error
