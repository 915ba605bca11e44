"""Which places of Pathfinder images are taken, in whole cells."""

import numpy as np
from numpy.typing import NDArray

from sbmt.experiments.data.pathfinder_settings import PathfinderSettings
from sbmt.experiments.data.pathfinder_tables import CELL_UNITS, UNITS, tables

FREE, CLOSED = 0, -1
"""Owners of cells that no paddle has: open ones, and those that none may pass, such as along the edges."""


class OccupiedMap:
    """The paddle that keeps others out of each cell, in many images; a paddle is a positive number.

    Args:
        n_images: How many images.
        settings: Of the images.
    """

    def __init__(self, n_images: int, settings: PathfinderSettings) -> None:
        self.tables = tables(settings)
        width, frame = self.tables.width, self.tables.frame
        middles = np.arange(width - 2 * frame) * CELL_UNITS + CELL_UNITS // 2
        edge = round(UNITS * (settings.padding + settings.paddle_thickness / 2))
        inside = frame + np.flatnonzero((middles >= edge) & (middles <= settings.size * UNITS - edge))
        owners = np.full((n_images, width, width), CLOSED, dtype=np.int16)
        owners[:, inside[:, None], inside] = FREE
        self._owners = owners.ravel()

    def has_room(self, images: NDArray[np.int64], places: NDArray[np.int64], beside: int) -> NDArray[np.bool_]:
        """Whether all places along a paddle are open, or belong to the one paddle that it may be beside.

        Args:
            images: ``(images,)``, numbers of the images.
            places: ``(images, paddles, places, 2)``, inside an image or its frame.
            beside: The paddle, or :data:`FREE` for none.

        Returns:
            ``(images, paddles)``.
        """
        owners = self._owners[self._cells(images, places)]
        return np.logical_and.reduce((owners == FREE) | (owners == beside), axis=-1)

    def claim(
        self,
        images: NDArray[np.int64],
        places: NDArray[np.int64],
        offsets: NDArray[np.int64],
        owner: int,
        rival: int | None = None,
    ) -> None:
        """Gives open cells to a paddle.

        A snake may go on beside its last paddle, that is through that one's cells. Where these are claimed by the
        other snake, nobody may pass any more.

        Args:
            images: ``(images,)``.
            places: ``(images, 2)``.
            offsets: ``(images, cells)`` or ``(1, cells)``, relative to the cells of the places.
            owner: The paddle.
            rival: The last paddle of another snake that is still growing.
        """
        cells = self._cells(images, places)[:, None] + offsets
        before = self._owners[cells]
        self._owners[cells[before == FREE]] = owner
        if rival is not None:
            self._owners[cells[before == rival]] = CLOSED

    def release(
        self, images: NDArray[np.int64], places: NDArray[np.int64], offsets: NDArray[np.int64], owner: int
    ) -> None:
        """Opens the cells that a paddle was given; arguments as for :meth:`claim`."""
        cells = self._cells(images, places)[:, None] + offsets
        self._owners[cells[self._owners[cells] == owner]] = FREE

    def _cells(self, images: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        width, frame = self.tables.width, self.tables.frame
        cells = places // CELL_UNITS
        first = (images * width + frame) * width + frame
        return cells[..., 1] * width + cells[..., 0] + first.reshape(-1, *[1] * (places.ndim - 2))
