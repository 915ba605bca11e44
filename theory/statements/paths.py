"""Statements about Hamiltonian paths and relays: Condition 2."""

import numpy as np

from theory.conditions import union
from theory.hamiltonian import check_path
from theory.patterns import relay_tokens, three_patterns
from theory.relays import canonical_path, counterexample, one_relay_per_block_path, paper_walk, relay_theorem
from theory.statements.statement import Found, statement


@statement("A2 and A3 swapped", "slip", "exhaustive", "1 ≤ k ≤ n ≤ 12", three_patterns)
def _swapped() -> Found:
    """Claim: in the path, arcs into relays come from A2 and arcs out of relays from A3.

    Verdict: the other way round, by the definition of an arc; harmless only because A3 is A2 transposed.
    """
    cases = [three_patterns(n, k) for n in range(1, 13) for k in range(1, n + 1)]
    holds = all(np.array_equal(a3, a2.T) for _, a2, a3 in cases)
    return holds, f"A3 = A2ᵀ in all {len(cases)} cases"


@statement("relays are revisited", "proof", "instance", "n = 16, k = 4", paper_walk)
def _revisited() -> Found:
    """Claim: walk a block, hop through a relay, walk the next block, and repeat: a Hamiltonian path.

    Verdict: every relay used as a bridge is walked again in its own block: k − 1 visits too many.
    """
    same, fresh = (paper_walk(16, 4, relay) for relay in ("same", "next"))
    holds = len(same) == 19 and same.count(12) == 4 and len(fresh) == 19 and not check_path(_union(16, 4), same)
    return holds, f"{len(same)} visits of 16 tokens, token 12 {same.count(12)} times"


@statement("block cycles do not suffice", "proof", "theorem", "n = 18, k = 3, by the relay theorem", relay_theorem)
def _counterexample() -> Found:
    """Claim: if every block has a Hamiltonian cycle, the union has a Hamiltonian path.

    Verdict: not with the last k tokens as relays: n = 18, k = 3 is a counterexample, and no order of visits mends
    it.
    """
    n, k, arcs = counterexample()
    verdict = relay_theorem(n, k, arcs)
    holds = not verdict.ham_path and (verdict.path_cover, verdict.limit) == (5, 4)
    return holds, f"without the relays {verdict.path_cover} paths are needed; {k} relays join {verdict.limit}"


@statement(
    "one relay per block mends the path", "repair", "theorem", "checked at n = 18, k = 3", one_relay_per_block_path
)
def _mended() -> Found:
    """Claim: (needed) block cycles give a Hamiltonian path of the union.

    Verdict: they do if each block holds one relay: every cycle ends in its own relay.
    """
    n, k = 18, 3
    relays = relay_tokens(n, k, "per_block")
    cycles = [[6 * b + i for i in order] for b, order in enumerate(([0, 2, 4, 1, 3, 5],) * k)]
    arcs = np.eye(n, dtype=bool)
    for cycle in cycles:
        arcs[np.roll(cycle, -1), cycle] = True  # query after key
    pattern = arcs | three_patterns(n, k, "per_block")[1]
    order = one_relay_per_block_path(n, cycles, relays)
    return check_path(pattern, order), f"path {order[:7]} … checked arc by arc"


@statement("complete blocks", "repair", "exhaustive", "1 ≤ k ≤ n ≤ 24", canonical_path)
def _complete() -> Found:
    """Claim: (needed) Condition 2 for complete blocks.

    Verdict: there is always a path, written down in O(n).
    """
    cases = [(n, k) for n in range(1, 25) for k in range(1, n + 1)]
    good = sum(check_path(_union(n, k), canonical_path(n, k) or []) for n, k in cases)
    return good == len(cases), f"{good} of {len(cases)} cases"


@statement("relays alone", "repair", "exhaustive", "1 ≤ k ≤ n ≤ 12", relay_theorem)
def _alone() -> Found:
    """Claim: (needed) what relays can do without any block arc.

    Verdict: a path exists exactly if n ≤ 2k + 1.
    """
    cases = [(n, k) for n in range(1, 13) for k in range(1, n + 1)]
    wrong = [(n, k) for n, k in cases if relay_theorem(n, k, []).ham_path != (n <= 2 * k + 1)]
    return not wrong, f"{len(cases)} cases, exceptions: {wrong or 'none'}"


def _union(n: int, k: int) -> np.ndarray:
    return union(three_patterns(n, k)).toarray()
