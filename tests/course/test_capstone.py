"""The example of the capstone page passes its own checklist."""

import re

from tests.course.reading import ROOT


def test_the_example_passes_all_points_of_the_checklist(capsys):
    page = (ROOT / "docs" / "capstone.md").read_text("utf-8")
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    _, frozen, tuned = capsys.readouterr().out.split("keeps ")
    assert frozen.count("✓") == 6, frozen
    assert tuned.count("✓") == 5 and "1. The weights are those of the trained network. ✗" in tuned, tuned
