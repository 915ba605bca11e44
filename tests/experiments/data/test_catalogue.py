"""Tests the sources of all tasks, and the properties that they share."""

import hashlib

import pytest

from sbmt import SbmtError
from sbmt.experiments.data.catalogue import FROM_FILES, GENERATED, find_source
from sbmt.experiments.data.locate import data_folder, prepared_folder

REAL = {  # name, and the expected start of the SHA-256 of symbols and labels
    "text": ("text", "822db08c449a870f"),
    "retrieval": ("retrieval-films", "4ef32859a548081d"),
    "image": ("image-lossy", "9d8056b72010fa09"),
    "sst2": ("sst2", "2e22c4692a3a24f8"),
    "qqp": ("qqp-subset", "729d61e46338c356"),
    "mnli": ("mnli-subset", "b58f17299e703982"),
    "qnli": ("qnli-subset", "d788128b49084e55"),
}


@pytest.mark.parametrize("task", REAL)
def test_the_real_files_have_the_known_content(shared_data, task):
    source = find_source(task, shared_data / task if task in ("text", "retrieval", "image") else shared_data)
    digest = hashlib.sha256()
    for _, part in source.parts():
        digest.update(part.symbols.tobytes() + part.labels.tobytes())
    assert (source.name, digest.hexdigest()[:16]) == REAL[task]
    assert source.origin == ("official" if source.name == task else "stand-in")


@pytest.mark.bad_input
@pytest.mark.parametrize("task", FROM_FILES)
def test_without_files_the_error_says_where_to_get_them(tmp_path, task):
    for path in (tmp_path, tmp_path / "nowhere", *([] if task in GENERATED else [None])):
        with pytest.raises(SbmtError, match="download .*https://"):
            find_source(task, path)


@pytest.mark.bad_input
def test_wrong_questions_are_refused(tmp_path):
    with pytest.raises(SbmtError, match="task to be one of 'listops', 'pathfinder', 'text'"):
        find_source("speech")
    with pytest.raises(SbmtError, match="generated"):
        find_source("listops", tmp_path, is_reduced=True)


def test_folders_come_from_the_environment_or_the_users_cache(tmp_path, monkeypatch):
    for name in ("data", "cache"):
        monkeypatch.setenv(f"SBMT_{name.upper()}", str(tmp_path / name))
    assert (data_folder(), prepared_folder()) == (tmp_path / "data", tmp_path / "cache")
    monkeypatch.delenv("SBMT_DATA")
    monkeypatch.setenv("SBMT_CACHE", "")
    assert data_folder().name == "data" and prepared_folder().name == "prepared"
    assert data_folder().parent == prepared_folder().parent and data_folder().parent.name == "sbmt"
