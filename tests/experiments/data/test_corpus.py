"""Tests corpora: streams that restore the text, however it is divided, blocks, and the law of masking."""

import gzip
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sbmt import SbmtError
from sbmt.experiments.data import corpus as module
from sbmt.experiments.data.corpus import EVERY, Blocks, blocks_of, corpus_source, make_masked_batch, select_and_mask
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import SPLITS
from sbmt.experiments.data.tokenizer import Tokenizer, train_tokenizer
from tests.statistics import binomial_p_values, pair_p_values, uniform_p_value

RNG = np.random.default_rng(0)
WORDS = ["the", "cat", "sat", "größer", "—", "<s>", "<mask>", " ", "\t", "\r", "12", "it’s"]
LINES = [" ".join(RNG.choice(WORDS, RNG.integers(0, 12))) + "\n" for _ in range(400)]
TEXT = "".join(LINES)
TOKENIZER = train_tokenizer([TEXT], 290)


def write(folder, files):
    """Writes the named texts, and returns their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return folder


def streams(source):
    """Returns the ids of every split, part after part."""
    ids = {split: [np.empty(0, np.uint16)] for split in SPLITS}
    for split, examples in source.parts():
        assert examples.lengths.tolist() == [[len(examples.symbols)]] and examples.labels.tolist() == [0]
        ids[split].append(examples.symbols)
    return {split: np.concatenate(parts) for split, parts in ids.items()}


def texts(source):
    return {split: TOKENIZER.decode(ids) for split, ids in streams(source).items()}


@pytest.mark.parametrize(("kind", "named"), [("txt", ()), ("txt.gz", ("dev",)), ("txt", ("dev", "test"))])
def test_what_no_file_is_named_for_gets_a_twentieth_of_the_lines(tmp_path, monkeypatch, kind, named):
    monkeypatch.setattr(module, "LINES_AT_ONCE", 7)
    write(tmp_path, {f"some.{kind}": TEXT} | {f"{split}.txt": f"only {split}\n" for split in named})
    found = texts(corpus_source(tmp_path, tokenizer=TOKENIZER))
    for split in ("dev", "test"):
        if split in named:
            assert found.pop(split) == f"only {split}\n"
        else:
            assert found[split].count("\n") * EVERY == len(LINES) and found[split] in TEXT
    assert sorted("".join(found.values()).split("\n")) == sorted(TEXT.split("\n"))


def test_without_a_tokeniser_one_is_trained_on_train_alone(tmp_path):
    write(tmp_path, {"a.txt": TEXT, "b.train.txt.gz": TEXT[:999], "my-dev.txt": "zqzq " * 250, "wiki.Test.txt.gz": "a"})
    source = corpus_source(tmp_path, vocab_size=300)
    tokenizer = Tokenizer(source.files["tokenizer.json"])
    assert tokenizer == train_tokenizer([TEXT, TEXT[:999]], 300) and source.vocab_size == tokenizer.vocab_size
    assert source.settings["tokenizer"] == tokenizer.sha256 and source.settings["is_tokenizer_trained"]


def test_every_line_is_encoded_by_itself_however_many_at_once(tmp_path, monkeypatch):
    write(tmp_path, {"train.txt.gz": TEXT, "dev.txt": "a", "test.txt": "b"})
    wanted = [i for line in LINES for i in TOKENIZER.encode(line).tolist()]
    for n_lines in (1, 300, 10**6):
        monkeypatch.setattr(module, "LINES_AT_ONCE", n_lines)
        assert streams(corpus_source(tmp_path, tokenizer=TOKENIZER))["train"].tolist() == wanted


@pytest.mark.bad_input
def test_too_little_text_or_a_file_in_two_splits_is_refused(tmp_path):
    with pytest.raises(SbmtError, match="provide UTF-8 text in"):
        corpus_source(tmp_path, tokenizer=TOKENIZER)
    with pytest.raises(SbmtError, match="at least 3 lines of text to divide into train, dev, test, got 2"):
        corpus_source(write(tmp_path, {"some.txt": "one\ntwo\n"}), tokenizer=TOKENIZER)
    same = dict.fromkeys(["train.txt", "test.txt"], "a\nb\nc\n")
    with pytest.raises(SbmtError, match="train.txt and test.txt with the same text"):
        corpus_source(write(tmp_path / "same", same), tokenizer=TOKENIZER)


SHARE = 0.001  # share of the suite's false alarms for each statistical test here
SMALL = train_tokenizer(["the cat sat on the mat"], 270)
PLAIN = np.arange(5, SMALL.vocab_size)
KEY = (3, 14)


def stream(n, seed=0):
    return np.random.default_rng(seed).integers(5, SMALL.vocab_size, n).astype(np.uint16)


def blocks(n, length):
    return Blocks(stream(n), length, SMALL.start_id, SMALL.end_id, SMALL.padding_id)


@given(st.integers(0, 60), st.integers(3, 20))
def test_blocks_hold_the_stream_once_between_start_and_end(n, length):
    made = blocks(n, length)
    tokens, is_real = made.rows(np.arange(len(made)))
    assert tokens.shape == is_real.shape == (len(made), length) and tokens.dtype == np.int64
    inside = [row[real][1:-1].tolist() for row, real in zip(tokens, is_real, strict=True)]
    assert [i for row in inside for i in row] == made.symbols.tolist()
    assert all(len(row) == length - 2 for row in inside[:-1]) and all(inside)
    for row, real in zip(tokens, is_real, strict=True):
        n_real = real.sum()
        assert real[:n_real].all() and row[0] == 0 and row[n_real - 1] == 2 and (row[n_real:] == 1).all()


def test_a_split_is_one_stream():
    sizes = np.array([[4], [0], [7], [5]])
    symbols, offsets = stream(16), (sizes.cumsum() - sizes.ravel())[:, None]
    whole = Split(np.array([0, 2, 3]), np.zeros(3, np.int64), symbols, offsets, sizes, {})
    assert blocks_of(whole, 6, SMALL).symbols.tolist() == symbols.tolist()
    with pytest.raises(SbmtError, match="one stream"):
        blocks_of(replace(whole, indices=np.array([0, 3])), 6, SMALL)


@pytest.mark.statistical(share=SHARE)
def test_every_token_is_selected_alike_and_apart_from_the_others(judge):
    n, width = 40_000, 12
    tokens = np.tile(stream(width).astype(np.int64), (n, 1))
    tokens[:, 0], tokens[:, 5] = SMALL.start_id, SMALL.mask_id
    is_real = np.tile(np.arange(width) < 10, (n, 1))
    _, selected = select_and_mask(tokens, is_real, SMALL, np.random.default_rng(0))
    is_asked = is_real[0] & (tokens[0] >= 5)
    assert is_asked.sum() == 8 and not selected[:, ~is_asked].any()
    mine = selected[:, is_asked]
    per_row = np.bincount(mine.sum(1), minlength=9)
    judge(
        binomial_p_values(mine.sum(0), n, 0.15),
        pair_p_values(mine, np.full(8, 0.15)),
        binomial_p_values(per_row, n, stats.binom.pmf(np.arange(9), 8, 0.15)),
        binomial_p_values((mine[::2] & mine[1::2]).sum(0), n // 2, 0.15**2),
    )


@pytest.mark.statistical(share=SHARE)
def test_selected_tokens_are_hidden_replaced_or_kept(judge):
    shape = 2000, 500
    tokens = np.random.default_rng(1).integers(5, SMALL.vocab_size, shape)
    inputs, selected = select_and_mask(tokens, np.ones(shape, np.bool_), SMALL, np.random.default_rng(2))
    assert (inputs[~selected] == tokens[~selected]).all()
    given_, true = inputs[selected], tokens[selected]
    n, n_plain = len(true), len(PLAIN)
    is_hidden, is_other = given_ == SMALL.mask_id, (given_ != SMALL.mask_id) & (given_ != true)
    p_other = 0.1 * (1 - 1 / n_plain)
    counts = [is_hidden.sum(), is_other.sum(), (given_ == true).sum()]
    shift = (given_[is_other] - true[is_other]) % n_plain  # shifts of 1 … n_plain − 1 are equally likely
    others = np.bincount(given_[is_other], minlength=SMALL.vocab_size)
    assert not others[list(SMALL.special_ids)].any()
    n_groups = 20  # number of bins, so that each count is large enough for a chi-square test
    groups = np.bincount((shift - 1) * n_groups // (n_plain - 1), minlength=n_groups)
    sizes = np.bincount(np.arange(n_plain - 1) * n_groups // (n_plain - 1))
    judge(
        binomial_p_values(counts, n, np.array([0.8, p_other, 1 - 0.8 - p_other])),
        uniform_p_value(groups, is_other.sum() * sizes / sizes.sum()),
        binomial_p_values(others[PLAIN], n, p_other / n_plain),
    )


@pytest.mark.parametrize("bounds", [(0, 8, 16), (0, 1, 2, 15, 16)])
def test_processes_that_share_a_batch_draw_what_one_would(bounds):
    made, examples = blocks(3000, 12), np.arange(16) * 7
    tokens, is_real = made.rows(examples)
    whole = make_masked_batch(made, examples, slice(0, 16), SMALL, KEY)
    assert whole.mask.numpy().tolist() == is_real.tolist() and whole.weight == 1.0
    assert whole.selected.any() and whole.labels.tolist() == tokens[whole.selected.numpy()].tolist()
    assert (whole.tokens.numpy() == tokens)[~whole.selected.numpy()].all()
    assert whole.tokens.dtype == whole.labels.dtype == torch.int64
    parts = [make_masked_batch(made, examples, slice(a, b), SMALL, KEY) for a, b in pairwise(bounds)]
    for name in ("tokens", "mask", "selected", "labels"):
        assert torch.cat([getattr(part, name) for part in parts]).equal(getattr(whole, name))
    for part, (a, b) in zip(parts, pairwise(bounds), strict=True):
        assert part.weight == pytest.approx(len(part.labels) * 16 / ((b - a) * len(whole.labels)))
