"""Documents of ids between start and end, cut where they are too long."""

from collections.abc import Iterable

import numpy as np

from sbmt.errors import SbmtError
from sbmt.experiments.data.source import Symbols


def check_room(length: int, n_documents: int) -> int:
    """How many ids of documents fit beside the special ones.

    Raises:
        SbmtError: If it is less than one of each document.
    """
    room = length - 2 * n_documents
    if room < n_documents:
        expected = f"length ≥ {3 * n_documents}: {2 * n_documents} special tokens and one of each text"
        raise SbmtError(expected, length, "give a larger length")
    return room


def shares(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """How much of two documents fits: all of the shorter one if that is at most half, else about half of each.

    Example:
        >>> shares(3, 9, 8), shares(7, 9, 9), shares(2, 3, 8)
        ((3, 5), (4, 5), (2, 3))
    """
    if n_first + n_second <= room:
        return n_first, n_second
    if n_first > n_second:
        return shares(n_second, n_first, room)[::-1]
    kept = min(n_first, room // 2)
    return kept, room - kept


def pack_ids(
    first: Iterable[Symbols], second: Iterable[Symbols] | None, length: int, start_id: int, end_id: int
) -> tuple[list[Symbols], int]:
    """``<s> A </s>`` for every document, or ``<s> A </s></s> B </s>`` for every pair.

    What is too long loses its end: of a pair the longer document does, until both are alike, then both do.

    Args:
        first: Ids of documents.
        second: Of as many more, or None.
        length: Most ids per example, special ones included.
        start_id: Of ``<s>``.
        end_id: Of ``</s>``.

    Returns:
        The ids of every example, and how many examples were cut.

    Raises:
        SbmtError: If ``length`` leaves no room for an id of each document.

    Example:
        >>> first, second = np.array([7, 8, 9], np.uint16), np.array([5], np.uint16)
        >>> packed, n_cut = pack_ids([first], [second], 7, 0, 2)
        >>> packed[0].tolist(), n_cut
        ([0, 7, 8, 2, 2, 5, 2], 1)
    """
    room = check_room(length, 1 if second is None else 2)
    packed: list[Symbols] = []
    n_cut = 0
    if second is None:
        for ids in first:
            packed.append(np.array([start_id, *ids[:room], end_id], ids.dtype))
            n_cut += len(ids) > room
        return packed, n_cut
    for a, b in zip(first, second, strict=True):
        n_a, n_b = shares(len(a), len(b), room)
        packed.append(np.array([start_id, *a[:n_a], end_id, end_id, *b[:n_b], end_id], a.dtype))
        n_cut += len(a) + len(b) > room
    return packed, n_cut
