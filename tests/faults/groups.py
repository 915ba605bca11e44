"""The groups of properties, and how cases of them are run: by tests a few, by ``run_many.py`` as many as wanted."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.faults.attentions import attention_cases, check_attention_case
from tests.faults.block_models import block_model_cases, check_block_model
from tests.faults.command_lines import check_command_line, command_cases
from tests.faults.edge_attentions import check_edge_attention, edge_attention_cases
from tests.faults.edge_lists import check_edge_list, edge_list_cases
from tests.faults.mistakes import check_mistake, mistake_cases
from tests.faults.networks import check_network, network_cases
from tests.faults.sandbox import sandbox


@dataclass(frozen=True)
class Group:
    """Cases, and what must hold of each.

    Attributes:
        cases: Draws one.
        check: Raises where a property does not hold; else says ``"answered"`` or, of what must not be taken,
            ``"refused"``.
        share: Of all cases, when many are run.
        place: What surrounds the cases.
    """

    cases: Callable[[], SearchStrategy[Any]]
    check: Callable[[Any], str]
    share: float
    place: Callable[[], AbstractContextManager[Any]] = nullcontext


GROUPS = {
    "block models": Group(block_model_cases, check_block_model, 0.15),
    "edge lists": Group(edge_list_cases, check_edge_list, 0.15),
    "attention along edges": Group(edge_attention_cases, check_edge_attention, 0.2),
    "attentions by name": Group(attention_cases, check_attention_case, 0.2),
    "models": Group(network_cases, check_network, 0.1),
    "mistakes": Group(mistake_cases, check_mistake, 0.1),
    "command lines": Group(command_cases, check_command_line, 0.1, sandbox),
}


def run_cases(name: str, n_cases: int, number: int | None = None) -> Counter[str]:
    """Runs cases of a group; the first failure is shrunk and raised.

    Args:
        name: Of the group.
        n_cases: How many.
        number: Seed of the draws; None draws the same every time.

    Returns:
        How many were answered and refused.
    """
    group, found = GROUPS[name], Counter[str]()

    @settings(
        max_examples=n_cases,
        derandomize=number is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(group.cases())
    def run(case: Any) -> None:
        found[group.check(case)] += 1

    with group.place():
        (run if number is None else seed(number)(run))()
    return found
