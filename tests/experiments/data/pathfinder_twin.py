"""Pathfinder's geometry once more, in floating-point numbers and from paddles' places and directions alone."""

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

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
    """Distances of all pairs of n segments (n, 2, 2), taken between 33 points on each."""
    shares = np.linspace(0, 1, 33)[:, None]
    points = segments[:, :1] * (1 - shares) + segments[:, 1:] * shares  # n 33 2
    distances = cdist(points.reshape(-1, 2), points.reshape(-1, 2))
    return distances.reshape(len(points), 33, len(points), 33).min((1, 3))


def joined(segments, distances, discs, reach):
    """Whether two discs lie on paddles that hang together, where gaps up to ``reach`` count as joined."""
    _, component = connected_components(distances <= reach)
    under = [distance_to_segments(disc, segments[:, 0], segments[:, 1]).argmin() for disc in discs]
    return int(component[under[0]] == component[under[1]])
