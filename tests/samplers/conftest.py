"""The fixture that every way to draw goes through."""

import pytest

from tests.samplers.laws import Draw


@pytest.fixture
def draw(request, monkeypatch):
    """See ``each_draw``; a test may also name one way by ``@pytest.mark.parametrize("draw", […], indirect=True)``."""
    return Draw(request.param, monkeypatch)
