"""Tests ``sbmt data`` on small files."""

import os
import re
import shutil
from pathlib import Path

import pytest

from sbmt.experiments.data.catalogue import GENERATED, REDUCED
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.studies.named import STUDIES
from tests.experiments.data.toy import toy_source
from tests.experiments.training.tiny_language import write_corpus


def test_data_are_prepared_and_listed(succeed, tmp_path, monkeypatch):
    monkeypatch.setitem(GENERATED, "listops", toy_source)
    monkeypatch.setitem(REDUCED, "listops", lambda: toy_source(name="toy-reduced"))
    assert str(tmp_path / "data") in succeed("data", "list")
    for option in ([], ["--reduced"], []):  # existing examples are shown again
        assert "generated" in succeed("data", "prepare", "listops", *option)
    out = succeed("data", "list")
    assert "toy-listops" in out and "toy-reduced" in out


def test_data_are_prepared_from_files_that_are_named(succeed, refused, tmp_path):
    for part in ("train", "eval", "test"):
        rows = f"1.0\ta\tb\tone\ttwo\n0.0\ta\tc\tone\t{part}\n"
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_text(rows)
    command = "data prepare retrieval --from ."
    out = succeed(*command.split())
    assert "official" in out and "2 document(s)" in out and "0.50 0.50" in out
    (tmp_path / "new_aan_pairs.test.tsv").write_bytes(b"1.0\ta\tb\tother\ttext\n")
    refused(command, "differ in settings")


def test_corpora_are_prepared_with_a_tokeniser_learnt_or_given_under_any_name(succeed, refused, tmp_path):
    """``make language`` prepares the same text twice, as sub-words and as bytes."""
    write_corpus(tmp_path / "data" / "lm")
    assert "corpus: own" in succeed("data", "prepare", "corpus", "--vocab-size", "280")
    refused("data prepare corpus --vocab-size 261", "differ in vocab_size, settings")
    succeed("data", "prepare", "corpus", "--name", "corpus-bytes", "--vocab-size", "261")
    (tmp_path / "mine.json").write_bytes((tmp_path / "cache" / "corpus" / "tokenizer.json").read_bytes())
    other = write_corpus(tmp_path / "other", seed=1)
    succeed("data", "prepare", "corpus", "--from", other, "--tokenizer", "mine.json", "--reduced")
    for name, size in {"corpus": 280, "corpus-bytes": 261, "corpus-reduced": 280}.items():
        assert Tokenizer.load(tmp_path / "cache" / name / "tokenizer.json").vocab_size == size


def test_make_language_prepares_the_corpus_of_every_study():
    """Two commands must not prepare different text under one name."""
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    names = []
    for words in re.findall("data prepare corpus (.*)", makefile):
        given = re.search(r"--name (\S+)", words)
        names.append(given[1] if given else "corpus-reduced" if "--reduced" in words else "corpus")
    assert sorted(names) == sorted({STUDIES[name].config.data_name for name in ("mlm-edges", "causal-text")})


@pytest.mark.parametrize("is_denied", [False, True])
def test_what_comes_after_a_damaged_folder_is_listed_too(run, toy_cache, tmp_path, monkeypatch, is_denied):
    """The system's answer is simulated, since root may read everything."""
    shutil.copytree(toy_cache, tmp_path / "cache")
    (tmp_path / "cache" / "toy-image" / "info.json").write_text("{")

    def stat(path, **_):
        if is_denied and str(path).endswith("toy-image/info.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return os.stat(path)

    monkeypatch.setattr("pathlib.Path.stat", stat)
    code, out, err = run("data", "list")
    assert code == 2 and err.count("\n") == 1 and "toy-image" in err and "toy-text: " in out
    assert ("toy-image (Permission denied): check its permissions" in err) == is_denied


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("speech", "task to be one of 'listops', 'text'"),
        ("corpus --vocab-size 300 --tokenizer mine.json", "the first two exclude each other"),
        ("corpus --from bad.txt --vocab-size 300", "line 4"),
        ("sst2 --vocab-size 300", "only for corpus"),
        ("sst2 --name mine", "only for corpus"),
        ("corpus --from some.txt --name ../mine --vocab-size 300", "another name"),
    ],
)
def test_mistakes_take_one_line(refused, tmp_path, command, words):
    (tmp_path / "bad.txt").write_bytes(b"a\nb\nc\n\xff\n")
    (tmp_path / "some.txt").write_text("some text\n" * 3)
    refused(f"data prepare {command}", words)
