"""Where each task's examples come from; making them is the business of the sources' own tests."""

import gzip

import pytest

from sbmt import SbmtError
from sbmt.experiments.data.catalogue import CATALOGUE, find_source
from sbmt.experiments.data.glue.tasks import GLUE
from sbmt.experiments.data.locate import data_folder, prepared_folder
from sbmt.experiments.data.source import TASKS
from sbmt.experiments.training.long_range import LONG_RANGE_TASKS, REDUCED

PAIR = "imdb_film_pairs"
ROW = b"1.0\ta\tb\tone\ttwo\n"


def write_pairs(folder, stem="new_aan_pairs", ending=".tsv"):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "eval", "test"):
        (folder / f"{stem}.{part}{ending}").write_bytes(gzip.compress(ROW) if ending.endswith("gz") else ROW)
    return folder


@pytest.fixture(autouse=True)
def empty_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SBMT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path / "cache"))


def test_the_catalogue_holds_the_long_range_tasks_and_glues():
    assert tuple(CATALOGUE) == (*LONG_RANGE_TASKS, *GLUE)
    assert set(CATALOGUE) | {"corpus"} == set(TASKS)


def test_reduced_retrieval_needs_no_files():
    reduced = find_source("retrieval", is_reduced=True)
    assert (reduced.name, reduced.task, reduced.origin) == (REDUCED["retrieval"].data_name, "retrieval", "generated")


@pytest.mark.parametrize("task", ["listops", "pathfinder"])
def test_two_tasks_are_generated_without_files(task):
    source, reduced = find_source(task), find_source(task, is_reduced=True)
    assert (source.name, source.task, source.origin) == (task, task, "generated")
    assert (reduced.name, reduced.task, reduced.origin) == (REDUCED[task].data_name, task, "generated")
    assert reduced.settings != source.settings
    assert (reduced.class_names, reduced.vocab_size) == (source.class_names, source.vocab_size)


@pytest.mark.parametrize("inner", ["", "retrieval"])
def test_files_are_looked_for_in_the_data_folder(tmp_path, inner):
    write_pairs(tmp_path / "data" / inner)
    source = find_source("retrieval")
    assert (source.name, source.origin) == ("retrieval", "official")
    assert source.shards[0].make().symbols.tobytes() == b"onetwo"


@pytest.mark.parametrize("is_reduced", [False, True])
@pytest.mark.parametrize("inner", ["qqp", "QQP", "glue/QQP"])
def test_tables_of_glue_are_looked_for_in_the_data_folder(tmp_path, inner, is_reduced):
    folder = tmp_path / "data" / inner
    folder.mkdir(parents=True)
    for stem in ("train", "dev"):
        (folder / f"{stem}.tsv").write_text("question1\tquestion2\tis_duplicate\none\ttwo\t1\n")
    source = find_source("qqp", is_reduced=is_reduced)
    assert (source.name, source.task, source.origin) == ("qqp", "qqp", "official")
    assert source.shards[0].make().symbols.tobytes() == b"onetwo"


def test_files_may_be_named(tmp_path):
    folder = write_pairs(tmp_path / "elsewhere")
    assert find_source("retrieval", folder).settings["files"]
    with pytest.raises(SbmtError):
        find_source("retrieval")


@pytest.mark.bad_input
@pytest.mark.parametrize("task", ["text", "retrieval", "image", *GLUE])
def test_missing_files_are_told(task):
    with pytest.raises(SbmtError):
        find_source(task)


@pytest.mark.bad_input
@pytest.mark.parametrize("task", CATALOGUE)
def test_a_folder_that_is_not_there_is_told(tmp_path, task):
    with pytest.raises(SbmtError):
        find_source(task, tmp_path / "nowhere")


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
