"""Associative recall at other lengths than that of training."""

from results.measure.recall_lengths import LOOKS
from sbmt.experiments.studies.named import STUDIES


def test_every_trial_has_lines_of_its_own():
    """Which are drawn at the end of a quarter of an hour."""
    trials = {trial.name for trial in STUDIES["recall"].trials}
    assert set(LOOKS) == trials
    assert len(set(LOOKS.values())) == len(LOOKS)
