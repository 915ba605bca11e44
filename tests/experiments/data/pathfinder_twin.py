"""Pathfinder's geometry once more, in floating-point numbers and from paddles' places and directions alone."""

import numpy as np
from scipy.sparse.csgraph import connected_components

from sbmt.experiments.data.pathfinder import LENGTH

UNITS, N_DIRECTIONS = 256, 64


def paddle_ends(middles, directions):
    """Begin and end of every paddle in pixels, (images, paddles, 2, 2)."""
    angles = directions * (2 * np.pi / N_DIRECTIONS)
    half = LENGTH / 2 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.stack([middles / UNITS - half, middles / UNITS + half], axis=-2)


def distance_to_segments(points, begins, ends):
    along = ends - begins
    share = ((points - begins) * along).sum(-1) / (along**2).sum(-1)
    return np.linalg.norm(points - begins - np.clip(share, 0, 1)[..., None] * along, axis=-1)


def segment_distances(segments):
    """Distances of all pairs of n segments (n, 2, 2)."""
    begins, ends = segments[:, 0], segments[:, 1]
    distances = np.min(
        [distance_to_segments(points[:, None], begins, ends) for points in (begins, ends)]
        + [distance_to_segments(points[None], begins[:, None], ends[:, None]) for points in (begins, ends)],
        axis=0,
    )

    def side(a, b, c):
        return np.sign(
            (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (c[..., 0] - a[..., 0])
        )

    a, b, c, d = begins[:, None], ends[:, None], begins[None], ends[None]
    cross = (side(a, b, c) != side(a, b, d)) & (side(c, d, a) != side(c, d, b))
    return np.where(cross, 0.0, distances)


def joined(segments, distances, discs, reach):
    """Whether two discs lie on paddles that hang together, where gaps up to ``reach`` count as joined."""
    _, component = connected_components(distances <= reach)
    under = [distance_to_segments(disc, segments[:, 0], segments[:, 1]).argmin() for disc in discs]
    return int(component[under[0]] == component[under[1]])
