"""Where each task's examples come from, and what all of these sources have in common."""

import numpy as np
import pytest

from sbmt import SbmtError
from sbmt.experiments.data import image
from sbmt.experiments.data.catalogue import CATALOGUE, find_source
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.data.locate import data_folder, prepared_folder
from sbmt.experiments.data.source import SPLITS
from tests.experiments.data.layouts import write_files

DIGITS = tuple("0123456789")
EXPECTED = {  # classes, vocabulary, first id, and folders in which the data folder may hold the files
    "listops": (DIGITS, 17, 0, ["listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000"]),
    "text": (("negative", "positive"), 257, 1, []),
    "retrieval": (("unrelated", "related"), 257, 1, ["tsv_data", "lra_release/lra_release/tsv_data"]),
    "image": (image.CLASSES, 256, 0, []),
    "pathfinder": (("apart", "connected"), 256, 0, ["curv_contour_length_14", "pathfinder32/curv_contour_length_14"]),
    "sst2": (("negative", "positive"), 257, 1, ["SST-2", "glue/SST-2"]),
    "qqp": (("different", "duplicate"), 257, 1, ["QQP", "GLUE/QQP"]),
    "mnli": (("contradiction", "neutral", "entailment"), 257, 1, ["MNLI", "glue/MNLI"]),
    "qnli": (("entailment", "not_entailment"), 257, 1, ["QNLI", "glue/QNLI"]),
}
PLACES = [(task, inner) for task, (*_, inners) in EXPECTED.items() for inner in ("", task, *inners)]


@pytest.fixture(autouse=True)
def empty_folders(tmp_path, monkeypatch, any_checksum):
    monkeypatch.setenv("SBMT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image, "N_IMAGES", 3)


@pytest.mark.parametrize("task, inner", [place for place in PLACES if place != ("pathfinder", "pathfinder")])
def test_official_files_are_found_and_read(tmp_path, pool_of, task, inner):
    folder = write_files(task, tmp_path / "data" / inner)
    named = folder if task == inner else tmp_path / "data"  # a folder named after the task is found if none is named
    source = find_source(task, named if task in ("listops", "pathfinder") else None)
    assert (source.name, source.task, source.origin) == (task, task, "official")
    assert (source.class_names, source.vocab_size, source.first_id) == EXPECTED[task][:3]
    pool, documents = pool_of(source)
    arranged = source.arrange(pool)
    assert set(SPLITS) <= set(arranged) and sorted(np.concatenate(list(arranged.values()))) == list(
        range(len(documents))
    )
    again = CATALOGUE[task].read(str(folder))  # as a string
    assert again.settings == source.settings and pool_of(again)[1] == documents


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "task, words",
    [
        ("listops", "basic_train.tsv, .*lra_release.gz"),
        ("text", "https://ai.stanford.edu/.*/aclImdb_v1.tar.gz"),
        ("retrieval", "new_aan_pairs.train.tsv.*lra_release.gz"),
        ("image", "https://www.cs.toronto.edu/.*binary.tar.gz"),
        ("pathfinder", "unpack pathfinder32/.*_14 of https.*lra_release.gz .*or generate the images"),
        *((task, "expected train.tsv, .*gluebenchmark.com") for task in GLUE),
    ],
)
def test_without_files_the_error_says_what_to_get(tmp_path, task, words):
    for name in ("", "nowhere"):
        with pytest.raises(SbmtError, match=words):
            find_source(task, tmp_path / name)
    if CATALOGUE[task].generate is None:
        with pytest.raises(SbmtError, match=words):
            find_source(task)


@pytest.mark.bad_input
def test_wrong_questions_are_refused(tmp_path):
    with pytest.raises(SbmtError, match="task among 'listops', 'text', 'retrieval', 'image', 'pathfinder'"):
        find_source("speech")
    with pytest.raises(SbmtError, match="leave one of the two out"):
        find_source("listops", tmp_path, is_reduced=True)


def test_folders_come_from_the_environment_or_the_users_cache(tmp_path, monkeypatch):
    assert (data_folder(), prepared_folder()) == (tmp_path / "data", tmp_path / "cache")
    monkeypatch.delenv("SBMT_DATA")
    monkeypatch.setenv("SBMT_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert data_folder().name == "data" and prepared_folder().name == "prepared"
    assert data_folder().parent == prepared_folder().parent and data_folder().parent.name == "sbmt"
