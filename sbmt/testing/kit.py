"""The conformance kit: runs all checks and reports on them together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sbmt.errors import SbmtError
from sbmt.testing import gradients, invariances, meaning, outputs, randomness
from sbmt.testing.subject import NotApplicableError, Subject, make_subject

CHECKS: dict[str, Callable[[Subject], None]] = {
    "shapes": outputs.check_shapes,
    "dtypes": outputs.check_dtypes,
    "errors": outputs.check_errors,
    "devices": outputs.check_devices,
    "density": outputs.check_density,
    "edges": outputs.check_edges,
    "padding is unread": invariances.check_padding_is_unread,
    "padding is absence": invariances.check_padding_is_absence,
    "padded queries": invariances.check_padded_queries,
    "permutation": invariances.check_permutation,
    "batch": invariances.check_batch,
    "empty rows": gradients.check_empty_rows,
    "all padding": gradients.check_all_padding,
    "single token": gradients.check_single_token,
    "gradient flow": gradients.check_gradient_flow,
    "gradients": gradients.check_gradients,
    "repeatable": randomness.check_repeatable,
    "global generator": randomness.check_global_generator,
    "generator governs": randomness.check_generator_governs,
    "leaves no trace": randomness.check_leaves_no_trace,
    "heads": meaning.check_heads,
    "two masks": meaning.check_two_masks,
    "more keys": meaning.check_more_keys,
    "weights": meaning.check_weights,
    "expected density": meaning.check_expected_density,
    "training": meaning.check_training,
    "long": meaning.check_long,
}
"""Checks by name; each raises SbmtError if the attention does not do what the check's docstring says."""


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    Attributes:
        name: A key of ``CHECKS``.
        is_passed: Whether nothing is wrong.
        message: What was expected and what came, why the check was skipped, or nothing.
        is_skipped: Whether the check does not apply to this attention; it then counts as passed.
    """

    name: str
    is_passed: bool
    message: str = ""
    is_skipped: bool = False


def run_attention_checks(module: nn.Module, **settings: Any) -> list[CheckResult]:
    """Runs every check and returns what each found, failures included; for arguments see :func:`check_attention`.

    Raises:
        SbmtError: If no input suits the module.
    """
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        subject = make_subject(module, **settings)
        return [_run(name, check, subject) for name, check in CHECKS.items()]


def _run(name: str, check: Callable[[Subject], None], subject: Subject) -> CheckResult:
    try:
        check(subject)
    except NotApplicableError as reason:
        return CheckResult(name, True, f"skipped: {reason}", is_skipped=True)
    except SbmtError as error:
        return CheckResult(name, False, str(error))
    except Exception as error:  # a module under test may raise anything
        return CheckResult(name, False, f"expected an output, got {type(error).__name__}: {error}")
    return CheckResult(name, True)


def check_attention(
    module: nn.Module,
    *,
    n_heads: int | None = None,
    d_head: int | None = None,
    n_tokens: int = 6,
    is_position_free: bool | None = None,
    n_draws: int = 128,
) -> list[CheckResult]:
    """Checks that an attention obeys the rules that all attentions of the library obey.

    The module is called as ``module(query, key, value, query_mask=…, key_mask=…, generator=…, return_edges=…)`` and
    returns an object with ``values``, ``density``, ``expected_density`` and ``edges``, such as
    :class:`~sbmt.AttentionOutput`. A copy is checked, in eval mode unless a check concerns training; neither the module
    nor PyTorch's global generators change. Random outputs are compared by their means over many fixed seeds, so the
    verdict is the same every time.

    Args:
        module: Any attention with that interface, ours or not.
        n_heads: Heads of the inputs; None: the attribute of that name, else the first number that the module takes.
        d_head: Width of the inputs; None: likewise.
        n_tokens: Tokens of the longest input, at least 3.
        is_position_free: Whether reordered tokens must give the same values in that order. None: they must, unless the
            module has an attribute ``n_positions``, or a ``window`` that is not None.
        n_draws: Calls per mean where random outputs are compared.

    Returns:
        One result per check, in the order of ``sbmt.testing.CHECKS``; those that do not apply say why.

    Raises:
        SbmtError: If a check fails; it lists every check that did, with what was expected and what came.

    Cost: some 400 calls; 900 more where outputs are random.

    Example:
        >>> from sbmt import build_attention
        >>> results = check_attention(build_attention("full", d_head=4, n_heads=2))
        >>> [result.message for result in results if result.is_skipped]
        ['skipped: nothing about its values is random in eval mode']
    """
    settings = {"n_heads": n_heads, "d_head": d_head, "n_tokens": n_tokens, "n_draws": n_draws}
    results = run_attention_checks(module, is_position_free=is_position_free, **settings)
    failed = [result for result in results if not result.is_passed]
    if failed:
        lines = "".join(f"\n- {result.name}: {result.message}" for result in failed)
        name = type(module).__name__
        raise SbmtError(f"{name} to pass {len(results)} checks", f"{len(failed)} that failed", f"see each{lines}")
    return results
