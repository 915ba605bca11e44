"""Exact search with a constraint solver, for circuits and for covers by the fewest paths.

A search that runs out of time raises :class:`Undecided`; it never guesses.
"""

from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from scipy.sparse import csr_array

from theory.checks import as_number

TIME_LIMIT = 20.0  # seconds that exact search may take
MAX_ARCS = 1_000_000  # a model with more arcs could not even be built in that time


class Undecided(RuntimeError):
    """Nothing was found or excluded within the limits; an outcome, not the caller's mistake."""


class Deadline:
    """A time limit in seconds that several searches share.

    Raises:
        SbmtError: If it is negative or not a number.
    """

    def __init__(self, seconds: float | int) -> None:
        do = "0 leaves only the cheap proofs"
        self.end = monotonic() + as_number(seconds, "a time limit of 0 seconds or more", do, 0)

    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.end - monotonic())


def solve_circuit(arcs: csr_array, deadline: Deadline, *, is_closed: bool) -> list[int] | None:
    """A Hamiltonian cycle (or path) along arcs without loops; None if there is none, Undecided if time runs out.

    A path is a circuit through one additional vertex that has arcs to and from all others.
    """
    n = arcs.shape[0]
    model, triples = _model(arcs, deadline)
    if not is_closed:
        triples += [(i, n, model.new_bool_var("")) for i in range(n)]
        triples += [(n, i, model.new_bool_var("")) for i in range(n)]
    model.add_circuit(triples)
    solver, status = _run(model, deadline)
    if status == "INFEASIBLE":
        return None
    if status not in ("OPTIMAL", "FEASIBLE"):
        raise Undecided(f"no answer in time for {n} tokens and {arcs.nnz} arcs")
    after = {i: j for i, j, used in triples if solver.boolean_value(used)}
    token = 0 if is_closed else after[n]
    order = []
    for _ in range(n):
        order.append(token)
        token = after[token]
    return order


def solve_cover(arcs: csr_array, deadline: Deadline) -> tuple[int, list[list[int]]]:
    """A lower bound on the number of disjoint paths that cover all vertices, and a cover; they agree if time suffices.

    The paths are circuits through a depot that is joined to all vertices; departures from it are minimised. Raises
    Undecided if no cover is found in time.
    """
    n = arcs.shape[0]
    model, triples = _model(arcs, deadline)
    triples = [(i + 1, j + 1, used) for i, j, used in triples]  # the solver expects the depot at 0
    departures = [model.new_bool_var("") for _ in range(n)]
    triples += [(0, i + 1, used) for i, used in enumerate(departures)]
    triples += [(i + 1, 0, model.new_bool_var("")) for i in range(n)]
    model.add_multiple_circuit(triples)
    model.minimize(sum(departures))
    solver, status = _run(model, deadline)
    if status not in ("OPTIMAL", "FEASIBLE"):
        raise Undecided(f"no path cover in time for {n} tokens and {arcs.nnz} arcs")
    after = {i: j for i, j, used in triples if i and solver.boolean_value(used)}
    paths = []
    for start in (i for i, used in enumerate(departures, start=1) if solver.boolean_value(used)):
        path = [start]
        while after[path[-1]]:
            path.append(after[path[-1]])
        paths.append([token - 1 for token in path])
    lower = len(paths) if status == "OPTIMAL" else max(1, round(solver.best_objective_bound))
    return lower, paths


def _model(arcs: csr_array, deadline: Deadline) -> tuple[Any, list[tuple[int, int, Any]]]:
    if arcs.nnz > MAX_ARCS or deadline.left() <= 0:
        why = "too many for the solver" if arcs.nnz > MAX_ARCS else "no time left"
        raise Undecided(f"{arcs.nnz} arcs between {arcs.shape[0]} tokens: {why}")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    starts, ends = arcs.nonzero()
    return model, [(int(i), int(j), model.new_bool_var("")) for i, j in zip(starts, ends, strict=True)]


def _run(model: Any, deadline: Deadline) -> tuple[Any, str]:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = deadline.left()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.catch_sigint_signal = False  # it would stop the search silently
    with ThreadPoolExecutor(1) as thread:
        search = thread.submit(solver.solve, model)
        try:
            return solver, solver.status_name(search.result())
        except BaseException:  # Ctrl-C, which Python only handles between its own steps
            solver.stop_search()
            raise
