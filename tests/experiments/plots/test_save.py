"""Files of figures, which are refused before there is anything to draw."""

import pytest

from sbmt import SbmtError
from sbmt.experiments.plots.save import check_figure, saved_figure


@pytest.mark.parametrize("name", ["x.png", "X.SVG", "x.pdf", "x.eps"])
def test_figures_are_written_in_the_format_that_their_name_asks_for(tmp_path, name):
    check_figure(tmp_path / "new" / name)
    assert list(tmp_path.iterdir()) == []
    with saved_figure(tmp_path / "new" / name, 1.0, 1.0):
        pass
    assert (tmp_path / "new" / name).stat().st_size > 0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "words"), [("x.pgf", "a file ending among"), ("x", "a file ending among"), ("file/x.png", "to write")]
)
def test_what_cannot_be_written_is_known_before(tmp_path, name, words):
    """PGF would need TeX."""
    (tmp_path / "file").touch()
    with pytest.raises(SbmtError, match=words):
        check_figure(tmp_path / name)
