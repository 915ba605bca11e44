"""One race on a GPU: who fits, what each takes of the memory, and what happens when one of them fails."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from traceback import format_exception
from typing import Any

from sbmt.command import is_out_of_memory
from sbmt.experiments.benchmarks.cases import Case
from sbmt.experiments.benchmarks.contestants import REFERENCE, entry
from sbmt.experiments.benchmarks.device import give_back, is_alive, mebibytes_added, room
from sbmt.experiments.benchmarks.gpu_contestants import SPARSE, TILED, GpuContestant
from sbmt.experiments.benchmarks.timing import Entry, Pace, race

MOST_SECONDS = 5.0  # one call; whoever takes longer is left out of the race
MOST_TRACE = 1500  # characters of a failure's traceback
Outcome = dict[str, Any]
"""A summary with its ``peak`` in MiB; or ``missing`` and why it does not take part; or ``failed``, how, and where."""


class GpuLost(Exception):
    """The GPU does not answer this process any more.

    Attributes:
        contestant: After whose call.
        why: What the call said.
    """

    def __init__(self, contestant: str, why: str) -> None:
        super().__init__(contestant, why)
        self.contestant, self.why = contestant, why


class _Fell(Exception):
    """A contestant failed in the middle of a race."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(name)
        self.name, self.outcome = name, outcome


@dataclass(frozen=True)
class _Guarded(Entry):
    """An entry whose failure, in the call or when the GPU is asked how long it took, tells its name."""

    name: str = ""

    def seconds(self) -> float:
        try:
            return super().seconds()
        except Exception as error:
            raise _Fell(self.name, outcome_of(error)) from None


@dataclass(frozen=True)
class Rules:
    """How a race is held.

    Attributes:
        contestants: By name, the reference among them.
        pace: How long to measure.
        trying: Told who is about to make its first call, and None once all have.
    """

    contestants: Mapping[str, GpuContestant]
    pace: Pace
    trying: Callable[[str | None], None] = lambda name: None


def hold_race(case: Case, is_training: bool, rules: Rules, barred: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """An outcome for every contestant.

    Each makes one call that does not count, and another one whose memory is noted, before those that are left take
    turns. Ratios are to :data:`REFERENCE`; where that is missing there are times alone.

    Args:
        case: On the device.
        is_training: Whether gradients are taken, too.
        rules: Who, for how long.
        barred: Outcomes that are known before.

    Raises:
        GpuLost: If a call left the GPU unusable.
    """
    device = case.query.device
    found: dict[str, Outcome] = dict(barred)
    entries: dict[str, Entry] = {}
    for name, contestant in rules.contestants.items():
        if name in found:
            continue
        why = contestant.why_not(case.setting, is_training) or contestant.why_too_large(case.setting, room(device))
        if why is not None:
            found[name] = {"missing": why}
            continue
        rules.trying(name)
        entries[name] = entry(contestant, case, is_training)
        found[name] = _first_calls(entries[name])
        if "peak" not in found[name] or "missing" in found[name]:
            del entries[name]
        _check_alive(name, found[name], entries.get(name), case)
    rules.trying(None)
    while entries:
        try:
            raced = _race(entries, rules.pace)
        except _Fell as fell:
            name, outcome = fell.name, fell.outcome
        else:
            found |= {name: one | found[name] for name, one in raced.items()}
            break
        found[name] = outcome  # only here are the failed call's tensors out of reach, and can be freed
        del entries[name]
        _check_alive(name, outcome, None, case)
    return {name: found[name] for name in rules.contestants}


def _first_calls(first: Entry) -> Outcome:
    try:
        first.seconds()
        start = perf_counter()
        peak = mebibytes_added(first.seconds, first.device)
        seconds = perf_counter() - start
    except Exception as error:  # whatever a contestant answers is the finding, and the others go on
        return outcome_of(error)
    if seconds > MOST_SECONDS:
        return {"missing": f"one call takes more than {MOST_SECONDS:g} s", "is_too_large": True, "peak": peak}
    return {"peak": peak}


def outcome_of(error: Exception) -> Outcome:
    """``missing`` where memory ran out, ``failed`` otherwise."""
    lines = (str(error).strip() or "no message").splitlines()
    words = " … ".join(dict.fromkeys((lines[0][:160], lines[-1][:160])))  # compilers put the reason last
    if is_out_of_memory(error):
        return {"missing": "out of memory", "is_too_large": True, "message": words}
    trace = "".join(format_exception(error))
    return {"failed": f"{type(error).__name__}: {words}", "trace": trace[-MOST_TRACE:]}


def _check_alive(name: str, outcome: Outcome, running: Entry | None, case: Case) -> None:
    if running is not None:
        return
    if not is_alive(case.query.device):
        raise GpuLost(name, str(outcome.get("failed") or outcome.get("missing")))
    give_back(case.query.device)


def _race(entries: dict[str, Entry], pace: Pace) -> dict[str, Outcome]:
    guarded = {name: _Guarded(one.run, one.prepare, one.device, name) for name, one in entries.items()}
    reference = REFERENCE if REFERENCE in entries else next(iter(entries))
    found = race(guarded, pace, reference=reference, headline=tuple({SPARSE, TILED} & set(entries)))
    if reference == REFERENCE:
        return found
    return {name: {x: y for x, y in one.items() if "ratio" not in x} for name, one in found.items()}
