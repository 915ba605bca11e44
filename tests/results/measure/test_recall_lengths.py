"""Associative recall at other lengths than that of training."""

from results.measure.recall_lengths import LOOKS
from sbmt.experiments.studies.recall import RECALL_STUDY


def test_every_trial_has_lines_of_its_own():
    """Which are drawn at the end of a quarter of an hour."""
    trials = {trial.name for trial in RECALL_STUDY.trials}
    assert set(LOOKS) == trials
    assert len(set(LOOKS.values())) == len(LOOKS)
