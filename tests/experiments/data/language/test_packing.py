import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import RobertaProcessing

from sbmt import SbmtError
from sbmt.experiments.data.language.tokenizer import check_room, pack_ids, shares

N = 40  # most words of a document in these tests


def library(length):
    """The library's own packing of words ``3``, ``4``, … whose ids are those numbers."""
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2} | {str(i): i for i in range(3, 3 + 2 * N)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.enable_truncation(length, strategy="longest_first")
    return tokenizer


def words(ids):
    return " ".join(map(str, ids))


def ids_of(sizes, first):
    return [np.arange(first, first + n).astype(np.uint16) for n in sizes]


@given(st.lists(st.tuples(st.integers(0, N), st.integers(0, N)), min_size=1, max_size=5), st.integers(6, 2 * N + 6))
def test_pairs_are_packed_as_by_the_library(sizes, length):
    first, second = ids_of([a for a, _ in sizes], 3), ids_of([b for _, b in sizes], 3 + N)
    packed, n_cut = pack_ids(first, second, length, 0, 2)
    tokenizer = library(length)
    assert [p.tolist() for p in packed] == [
        tokenizer.encode(words(a), words(b)).ids for a, b in zip(first, second, strict=True)
    ]
    assert n_cut == sum(a + b + 4 > length for a, b in sizes)


@given(st.lists(st.integers(0, N), min_size=1, max_size=5), st.integers(3, N + 4))
def test_single_documents_are_packed_as_by_the_library(sizes, length):
    documents = ids_of(sizes, 3)
    packed, n_cut = pack_ids(documents, None, length, 0, 2)
    assert [p.tolist() for p in packed] == [library(length).encode(words(ids)).ids for ids in documents]
    assert n_cut == sum(n + 2 > length for n in sizes)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(2, 60))
def test_room_is_used_up_and_the_shorter_document_is_kept(n_first, n_second, room):
    kept = shares(n_first, n_second, room)
    assert sum(kept) == min(room, n_first + n_second)
    assert kept[0] <= n_first and kept[1] <= n_second
    if kept[0] < n_first:  # what is cut is the longer one, or as long as the other up to the odd id
        assert kept[0] >= kept[1] - 1
    if kept[1] < n_second:
        assert kept[1] >= kept[0] - 1


@pytest.mark.parametrize("kind", ["uint16", "uint32"])
def test_ids_keep_their_type(kind):
    ids = [np.array([5, 6]).astype(kind)]
    assert pack_ids(ids, None, 9, 0, 2)[0][0].dtype == pack_ids(ids, ids, 9, 0, 2)[0][0].dtype == kind


@pytest.mark.parametrize(("length", "n_documents"), [(3, 1), (6, 2)])
def test_every_document_has_room_for_one_id(length, n_documents):
    assert check_room(length, n_documents) == n_documents
    ids = [np.array([7, 8, 9], np.uint16)]
    packed, _ = pack_ids(ids, ids if n_documents == 2 else None, length, 0, 2)
    assert packed[0].tolist() == ([0, 7, 2] if n_documents == 1 else [0, 7, 2, 2, 7, 2])
    with pytest.raises(SbmtError, match=f"length ≥ {length}"):
        check_room(length - 1, n_documents)
