"""The fixture that the samplers' tests go through, too."""

from tests.samplers.conftest import draw

__all__ = ["draw"]
