"""Statements about patterns, layers and Condition 3."""

from itertools import permutations

import numpy as np

from theory.conditions import min_layers, static_layers
from theory.factorised import causal_layers
from theory.patterns import block_sizes, fixed, one_based_blocks, relay_tokens, strided, three_patterns
from theory.statements.statement import Found, statement

ORDERS = tuple(permutations((1, 2, 3)))
UPPER: dict[tuple[int, ...], int] = {(1, 2, 3): 5, (1, 3, 2): 3, (2, 1, 3): 4, (2, 3, 1): 4, (3, 1, 2): 3, (3, 2, 1): 2}


@statement("blocks counted from 1", "slip", "instance", "n = 16, k = 4", one_based_blocks)
def _blocks_from_one() -> Found:
    """Claim: token i of 1 … n belongs to block ⌊ik/n⌋.

    Verdict: that makes k + 1 classes; counted from 0 it makes k.
    """
    sizes = np.bincount(one_based_blocks(16, 4)).tolist()
    entries = sum(size * size for size in sizes)
    right = block_sizes(16, 4)
    holds = sizes == [3, 4, 4, 4, 1] and entries == 58 and right == [4] * 4
    return holds, f"classes of {sizes} and {entries} entries instead of {right} and 64"


@statement("first receptive set", "slip", "instance", "n = 16, k = 4", three_patterns)
def _first_set() -> Found:
    """Claim: S_i^1 := A_k^1.

    Verdict: the index must be i; read as printed, all tokens start from one token's neighbours.
    """
    a1 = three_patterns(16, 4)[0]
    without = int((~a1[4][np.arange(16)]).sum())
    return without == 12, f"as printed, {without} of 16 tokens do not see themselves after one layer"


@statement("three layers", "conclusion", "exhaustive", "bounds: 1 ≤ k ≤ n ≤ 12; numbers: n = 16, k = 4", min_layers)
def _three_layers() -> Found:
    """Claim: the three patterns, in the order listed, connect all tokens in s = 3 layers.

    Verdict: they take 5; the order decides, and A3 before A2 takes 2.
    """
    found = {order: min_layers(three_patterns(16, 4), order) for order in ORDERS}
    bounded = all(
        (min_layers(three_patterns(n, k), order) or 99) <= UPPER[order]
        for n in range(1, 13)
        for k in range(1, n + 1)
        for order in ORDERS
    )
    text = ", ".join(f"{''.join(map(str, order))}: {s}" for order, s in found.items())
    return found == UPPER and bounded, text


@statement("static connectivity", "proof", "instance", "n = 16, k = 4", static_layers)
def _static() -> Found:
    """Claim: Condition 3 is strong connectivity of the patterns' union after s layers.

    Verdict: the two differ: layers come one after the other.
    """
    patterns = three_patterns(16, 4)
    pairs = [(static_layers(patterns, order), min_layers(patterns, order)) for order in ORDERS]
    holds = pairs == [(3, 5), (3, 3), (3, 4), (2, 4), (3, 3), (2, 2)]
    return holds, "static and true layers of the six orders: " + ", ".join(f"{a}/{b}" for a, b in pairs)


@statement("relays in all", "slip", "exhaustive", "1 ≤ k ≤ n ≤ 12", relay_tokens)
def _relays_in_all() -> Found:
    """Claim: there are k relays for each cluster.

    Verdict: the formulas give k relays in all.
    """
    cases = [(n, k) for n in range(1, 13) for k in range(1, n + 1)]
    holds = all(len(relay_tokens(n, k)) == k for n, k in cases)
    full_columns = int(three_patterns(16, 4)[1].all(axis=0).sum())
    return holds and full_columns == 4, f"{full_columns} tokens are read by all at n = 16, k = 4"


@statement("one relay per block", "repair", "instance", "(n, k) = (16, 4), (18, 3), (64, 8), (10, 4)", three_patterns)
def _relay_per_block() -> Found:
    """Claim: (needed) the listed order meets s ≤ 3.

    Verdict: with complete blocks and one relay in each, the listed order takes 2 layers.
    """
    cases = ((16, 4), (18, 3), (64, 8), (10, 4))
    layers = [min_layers(three_patterns(n, k, "per_block")) for n, k in cases]
    return layers == [2, 2, 2, 2], f"layers in the listed order: {layers}"


@statement("factorised patterns", "repair", "exhaustive", "n ≤ 10, l ≤ 12, 0 ≤ c ≤ l", causal_layers)
def _factorised() -> Found:
    """Claim: strided and fixed patterns connect every pair in two hops.

    Verdict: strided always; fixed with self-loops in the order A1, A2 if c ≥ 1 or n ≤ l; in the order A2, A1 only
    if c = l or n ≤ l.
    """
    wrong = cases = 0
    for n in range(1, 11):
        for stride in range(1, 13):
            pair = strided(n, stride)
            wrong += sum((causal_layers(pair, order) or 99) > 2 for order in ((1, 2), (2, 1)))
            for c in range(stride + 1):
                pair = fixed(n, stride, c, self_loops=True)
                forward, backward = ((causal_layers(pair, order) or 99) <= 2 for order in ((1, 2), (2, 1)))
                wrong += (forward != (c >= 1 or n <= stride)) + (backward != (c == stride or n <= stride))
                cases += 1
    return wrong == 0, f"{cases} fixed and 120 strided cases, {wrong} exceptions"


@statement("a well-known blog's example", "slip", "instance", "n = 16, stride 4", strided)
def _blog() -> Found:
    """Claim: 15 reads 3 through the strided pattern's first factor, and A2_15 is {3, 7, 11}.

    Verdict: 3 lies in A2_15, not in A1_15, and 15 is missing from A2_15.
    """
    first, second = (np.flatnonzero(pattern[15]).tolist() for pattern in strided(16, 4))
    return first == [11, 12, 13, 14, 15] and second == [3, 7, 11, 15], f"A1_15 = {first}, A2_15 = {second}"


@statement("the same blog's formulas", "slip", "instance", "n = 16, l = 4, c = 1, p = 2", fixed)
def _blog_formulas() -> Found:
    """Claim: fixed attention reads residues t … l and needs no j ≤ i; each set has (√n)^(1/p) entries.

    Verdict: residues end at l − 1; without j ≤ i a token reads later ones; for p factors it is n^(1/p).
    """
    never = not any(token % 4 == 4 for token in range(16))
    later = int(np.triu(fixed(16, 4, 1, causal=False)[0], 1).sum())
    size = int(strided(16, 4)[1].sum(1).max())
    shown = f"residue 4 mod 4 never occurs, {later} entries look ahead, {size} entries against √√16 = {16**0.25:g}"
    return never and later == 24 and size == 4, shown
