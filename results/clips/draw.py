"""A film of Algorithm 1: edges fall one after another, and pairs that were hit twice are merged."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

from results.clips.film import FADE, Film, Number, box, number, words
from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import Purpose, random_blocks, to_uniform
from sbmt.experiments.plots.style import GREEN, ORANGE, PURPLE
from sbmt.samplers.streams import choose_by_weight, cumulative_table, poisson_quantile

SEED = 0
MEMBERSHIP = (
    *[(1.0, 0.0, 0.0)] * 3,
    (0.6, 0.4, 0.0),
    *[(0.0, 1.0, 0.0)] * 3,
    (0.0, 0.5, 0.5),
    *[(0.0, 0.0, 1.0)] * 4,
)
BLOCK_MATRIX = ((0.5, 0.05, 0.0), (0.02, 0.45, 0.02), (0.2, 0.02, 0.4))
"""Twelve tokens in three clusters; those of the third also read the first, but not the other way round."""

# Where things are, in user units.
LEFT, TOP, CELL = 122, 152, 25  # of the grid
BARS_LEFT, BARS_TOP, BARS = 58, 88, 58  # of the memberships; the block matrix is in their corner
N = len(MEMBERSHIP)
SIDE = N * CELL
Place: TypeAlias = tuple[Number, Number, Number, Number]
"""Left, top, width and height."""

# When things happen, in seconds.
SECONDS = 12.0
FIRST_DRAW, N_SLOW, SLOW, FAST, FALL = 1.8, 3, 1.0, 0.11, 0.4
REST, COUNTED, END = 0.5, 1.7, 0.5  # after the last draw, then to the merging; each step of clearing up at the end

STYLE = """\
.lines { stroke: var(--line); }
.cell { fill: var(--cell); }
.rate { fill: var(--ink); }
.fresh { fill: var(--fresh); }
.edge { fill: var(--edge); }
.ball { fill: var(--ink); }
.frame { fill: none; stroke: var(--ink); stroke-width: 2.5; }
.count { font-weight: 700; font-size: 15px; text-anchor: middle; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); }"""


@dataclass(frozen=True)
class Draw:
    """One edge that was drawn: the clusters first, then a query of the one and a key of the other."""

    query_cluster: int
    key_cluster: int
    query: int
    key: int


def example_model() -> BlockModel:
    """The block model of the film. Under its Poisson link, merged draws are independent edges of the right law."""
    membership = torch.tensor(MEMBERSHIP)[None, None]
    return BlockModel(membership, torch.tensor(BLOCK_MATRIX)[None], membership, link="poisson")


def trace_draws(model: BlockModel, seed: int) -> list[Draw]:
    """The draws behind ``sample_fastrg(model, 0.0, seed, 0)`` in their order, for a model of a single graph."""
    query, key = model.query_membership[0, 0].double(), model.key_membership[0, 0].double()
    block, n_clusters = model.block_matrix[0].double(), model.n_clusters
    rate = query.sum(0)[:, None] * block * key.sum(0)
    zero = torch.zeros(1, dtype=torch.int64)
    word = random_blocks(seed, Purpose.COUNT, zero, zero, zero, zero)[:, 0]
    draw = torch.arange(int(poisson_quantile(to_uniform(word), rate.sum()[None])))
    random = random_blocks(seed, Purpose.CANDIDATE, zero, zero, zero, draw)
    pair = choose_by_weight(cumulative_table(rate.flatten()[None]), n_clusters**2, 0 * draw, random[:, 0])
    u, v = pair // n_clusters, pair % n_clusters
    i = choose_by_weight(cumulative_table(query.T), len(query), u, random[:, 1])
    j = choose_by_weight(cumulative_table(key.T), len(key), v, random[:, 2])
    return [Draw(*numbers) for numbers in torch.stack([u, v, i, j], 1).tolist()]


def draw_clip(path: Path) -> None:
    """Writes the film."""
    make_film(trace_draws(example_model(), SEED)).write(path)


def make_film(draws: list[Draw]) -> Film:
    """The film of these draws from the example's block model."""
    counts = Counter((draw.query, draw.key) for draw in draws)
    n_repeated = sum(count > 1 for count in counts.values())
    lands = [_landing(order) for order in range(len(draws))]
    rest = lands[-1] + REST
    merge = rest + COUNTED
    film = Film(
        "A mask is drawn from a block model",
        f"Memberships of {N} tokens in three clusters and a block matrix stand around an empty grid, which has a row "
        f"for each query and a column for each key. {len(draws)} edges fall into the grid one after another. "
        f"{n_repeated} pairs are drawn more than once. They are merged, which leaves a mask of {len(counts)} edges.",
        width=460,
        height=542,
        seconds=SECONDS,
        light={"c0": ORANGE, "c1": GREEN, "c2": PURPLE},
        style=STYLE,
    )
    film.add(words(24, 38, "Drawing a mask from a block model", "title"), *_grid(), *_block_model())

    # Cells come first, so that balls and counts lie above them.
    balls: list[str] = []
    seen: Counter[tuple[int, int]] = Counter()
    for order, (draw, land) in enumerate(zip(draws, lands, strict=True)):
        pair = draw.query, draw.key
        seen[pair] += 1
        if seen[pair] == 1:
            film.add(_cell(*pair, f"fresh later {film.shown(land, SECONDS - 2 * END, fade=0.05)}"))
        else:
            until = merge if seen[pair] == counts[pair] else SECONDS - 2 * END
            balls.append(_count(film, pair, seen[pair], land, until))
        balls += [*_choice(film, draw, land)] if order < N_SLOW else []
        balls.append(_ball(film, draw, land))
    film.add(*balls)
    film.add(f'<g class="mask {film.shown(merge, SECONDS - END, fade=END)}">')
    film.add(*(_cell(*pair, "edge") for pair in sorted(counts)), "</g>")

    fast = lands[N_SLOW - 1] + FADE
    for start, end, lines in (
        (0.0, FIRST_DRAW, ("Bars: the clusters of each token. Matrix:", "how often one cluster reads another.")),
        (FIRST_DRAW, fast, ("Draw a pair of clusters, then a query", "from the one and a key from the other.")),
        (fast, rest, ("And again: the work grows with the", "number of edges, not of pairs.")),
        (rest, merge, (f"{n_repeated} pairs were drawn more than once.", "A mask has them once: they are merged.")),
        (merge, None, (f"{len(draws)} draws, repeats merged:", f"a mask of {len(counts)} edges.")),
    ):
        kind = film.shown(start, end and end - FADE)
        kind = f"later {kind}" if end else kind
        film.add(*(words(24, 489 + 26 * row, line, kind) for row, line in enumerate(lines)))
    return film


def _landing(order: int) -> float:
    """When a draw reaches its cell."""
    n_slow = min(order + 1, N_SLOW)
    return FIRST_DRAW + n_slow * SLOW + (order + 1 - n_slow) * FAST


def _grid() -> list[str]:
    lines = "".join(f"M{LEFT + CELL * i} {TOP}v{SIDE}M{LEFT} {TOP + CELL * i}h{SIDE}" for i in range(N + 1))
    middle = TOP + SIDE / 2
    turned = f"rotate(-90 36 {number(middle)})"
    return [
        box(LEFT, TOP, SIDE, SIDE, "cell"),
        f'<path class="lines" d="{lines}"/>',
        words(LEFT + SIDE / 2, BARS_TOP - 13, "keys", "label", text_anchor="middle"),
        words(36, middle, "queries", "label", text_anchor="middle", transform=turned),
    ]


def _block_model() -> list[str]:
    """Memberships left of the rows and above the columns, and the block matrix where they meet."""
    found = [words(BARS_LEFT - 34, BARS_TOP - 13, "block matrix", "label")]
    for token, shares in enumerate(MEMBERSHIP):
        past = 0.0
        for cluster, share in enumerate(shares):
            if share:
                x, y, long, wide = _query_bar(token)
                found.append(box(x + past * long, y, share * long, wide, f"c{cluster}"))
                x, y, wide, long = _key_bar(token)
                found.append(box(x, y + past * long, wide, share * long, f"c{cluster}"))
                past += share
    largest = max(max(row) for row in BLOCK_MATRIX)
    for u, row in enumerate(BLOCK_MATRIX):
        x, y, size, _ = _block(u, u)
        found += [box(BARS_LEFT - 8, y, 5, size, f"c{u}"), box(x, BARS_TOP - 8, size, 5, f"c{u}")]
        for v, rate in enumerate(row):
            found += [box(*_block(u, v), "cell"), box(*_block(u, v), "rate", fill_opacity=number(rate / largest))]
    return found


def _query_bar(query: int) -> Place:
    return BARS_LEFT, TOP + CELL * query + 3, BARS, CELL - 6


def _key_bar(key: int) -> Place:
    return LEFT + CELL * key + 3, BARS_TOP, CELL - 6, BARS


def _block(query_cluster: int, key_cluster: int) -> Place:
    size = BARS / len(BLOCK_MATRIX)
    return BARS_LEFT + key_cluster * size + 1, BARS_TOP + query_cluster * size + 1, size - 2, size - 2


def _cell(query: int, key: int, kind: str) -> str:
    return box(LEFT + CELL * key + 1.5, TOP + CELL * query + 1.5, CELL - 3, CELL - 3, kind, rx="3")


def _choice(film: Film, draw: Draw, land: float) -> list[str]:
    """Frames around the clusters of a draw, then around its query and its key."""
    start, end = land - SLOW, land - 0.1
    frames = (
        (start, _block(draw.query_cluster, draw.key_cluster)),
        (start + 0.25, _query_bar(draw.query)),
        (start + 0.25, _key_bar(draw.key)),
    )
    return [
        box(x - 2, y - 2, width + 4, height + 4, f"frame later {film.shown(at, end, fade=0.1)}", rx="2")
        for at, (x, y, width, height) in frames
    ]


def _ball(film: Film, draw: Draw, land: float) -> str:
    """It falls from the bar of its key to the row of its query."""
    at, depth = land - FALL, number((draw.query + 0.5) * CELL + 4)
    kind = film.moving(
        (at, "opacity: 0; transform: translateY(0)"),
        (at + 0.05, "opacity: 1; transform: translateY(0); animation-timing-function: cubic-bezier(.4, 0, 1, .8)"),
        (land, f"opacity: 1; transform: translateY({depth}px)"),
        (land + 0.2, f"opacity: 0; transform: translateY({depth}px)"),
    )
    return f'<circle class="ball later {kind}" cx="{number(LEFT + (draw.key + 0.5) * CELL)}" cy="{TOP - 4}" r="6"/>'


def _count(film: Film, pair: tuple[int, int], count: int, land: float, until: float) -> str:
    """How often a pair has been drawn, in a cell that hides the last count."""
    query, key = pair
    text = words(LEFT + (key + 0.5) * CELL, TOP + (query + 0.71) * CELL, f"×{count}", "count")
    return f'<g class="later {film.shown(land, until, fade=0.1)}">{_cell(query, key, "fresh")}{text}</g>'
