"""The fixture that runs a test for every way to draw masks."""

import pytest

from tests.samplers.laws import Draw


@pytest.fixture
def draw(request, monkeypatch):
    """See ``each_draw``. A test may also name one way by ``@pytest.mark.parametrize("draw", […], indirect=True)``."""
    return Draw(request.param, monkeypatch)
