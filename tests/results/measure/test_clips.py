import torch

from results.clips import Course, fit_clip
from results.measure.clips import EVERY, shown_tokens, train
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.repeated_tokens import see_mask
from sbmt.experiments.training import RepeatedTokensConfig, build_model
from sbmt.experiments.training.tasks import fitted

LENGTH = 8
TINY = RepeatedTokensConfig(length=LENGTH, batch_size=4, d_model=8, d_hidden=8).override(
    **fitted(preset="fitted", edges_per_query=4.0, n_clusters=16, steps=2 * EVERY)
)


def test_what_is_measured_can_be_shown(tmp_path):
    found = train(TINY)
    assert found == train(TINY)
    write_json(tmp_path / "clips.json", {"tokens": shown_tokens(LENGTH)} | found)
    course = Course.from_record(read_json(tmp_path / "clips.json"))
    assert list(course.steps) == [one.step for one in course.snapshots] == [0, EVERY, 2 * EVERY]
    assert all(0 <= accuracy <= 1 for accuracy in course.accuracy)
    assert all(1 <= keys <= LENGTH for keys in course.keys)  # a token always attends to itself
    assert all(row[i] == "9" for one in course.snapshots for i, row in enumerate(one.tenths))
    fit_clip(course, tmp_path / "fit.svg")


def test_the_tokens_are_those_of_the_masks():
    tokens = torch.tensor(shown_tokens(LENGTH))
    assert torch.equal(see_mask(build_model(TINY)).twins, tokens[:, None] == tokens)
