"""Compares Philox with published vectors and plain integers, and tests the addresses of its words."""

import pytest
import torch

from sbmt.counter_rng import Purpose, cell_words, draw_seed, edge_words, philox, random_blocks, to_uniform
from tests.statistics import bit_p_values, uniform_p_value

F = 0xFFFFFFFF
PI = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
PUBLISHED = [  # counter and key, result: kat_vectors of Random123
    ([0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([F] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (PI, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


def plain_philox(counter, key):
    """Computes Philox4x32-10 as the paper defines it, with Python integers."""
    (a, b, c, d), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * a, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c, 1 << 32)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % (1 << 32), (k1 + 0xBB67AE85) % (1 << 32)
    return [a, b, c, d]


def grid(*sizes):
    """Returns every address of a small box: example, head, row, block."""
    return [axis.flatten() for axis in torch.meshgrid(*map(torch.arange, sizes), indexing="ij")]


@pytest.mark.parametrize(("words", "result"), PUBLISHED)
def test_philox_gives_the_published_vectors(words, result):
    *counter, k0, k1 = words
    drawn = philox(k0 + (k1 << 32), tuple(torch.tensor([word]) for word in counter))
    assert drawn[:, 0].tolist() == result == plain_philox(counter, (k0, k1))


def test_philox_equals_its_plain_twin_on_random_words():
    generator = torch.Generator().manual_seed(0)
    counter = torch.randint(0, 1 << 32, (4, 200), generator=generator)
    for seed in (-1, -(1 << 63), (1 << 63) - 1, draw_seed(generator)):
        key = seed % (1 << 32), (seed >> 32) % (1 << 32)
        expected = [plain_philox(c, key) for c in counter.T.tolist()]
        assert philox(seed, tuple(counter)).T.tolist() == expected


def test_an_address_is_the_counter_and_the_seed_is_the_key():
    example, head, row, block = (torch.tensor([x]) for x in (3, 5, 7, 11))
    words = random_blocks(9, Purpose.CANDIDATE, example, head, row, block)
    assert words.tolist() == [plain_philox((11, 7, 5 + (2 << 28), 3), (9, 0))]


def test_words_depend_neither_on_other_addresses_nor_on_chunks(monkeypatch):
    address = grid(2, 2, 5, 7)
    words = random_blocks(1, Purpose.CELL, *address)
    chosen = torch.randperm(140, generator=torch.Generator().manual_seed(0))[:30]
    assert torch.equal(words[chosen], random_blocks(1, Purpose.CELL, *(a[chosen] for a in address)))
    monkeypatch.setattr("sbmt.counter_rng._CHUNK", 3)
    assert torch.equal(words, random_blocks(1, Purpose.CELL, *address))


@pytest.mark.parametrize("n_keys", [1, 4, 7])
def test_cell_and_edge_words_agree_and_do_not_depend_on_the_number_of_keys(n_keys):
    address = grid(2, 2, 3)
    cells = cell_words(5, Purpose.KEEP, *address, n_keys)
    assert cells.shape == (12, n_keys)
    assert torch.equal(cells, cell_words(5, Purpose.KEEP, *address, 20)[:, :n_keys])
    rows = torch.arange(12).repeat_interleave(n_keys)
    keys = torch.arange(n_keys).repeat(12)
    assert torch.equal(cells.flatten(), edge_words(5, Purpose.KEEP, *(a[rows] for a in address), keys))


def test_uniforms_lie_strictly_inside_the_unit_interval():
    least, most = to_uniform(torch.tensor([0, F])).tolist()
    assert least == 2.0**-33 and most == 1 - 2.0**-33


@pytest.mark.statistical(share=0.004)
def test_words_are_uniform(judge):
    words = random_blocks(2, Purpose.CELL, *grid(4, 4, 64, 256)).flatten()
    shares = [uniform_p_value(torch.bincount(words >> s & 255).numpy(), words.numel() / 256) for s in (0, 8, 16, 24)]
    judge(bit_p_values(words), shares)


def neighbours():
    example, head, row, block = grid(4, 4, 64, 64)
    one = torch.ones((), dtype=torch.long)
    here = random_blocks(3, Purpose.CELL, example, head, row, block)
    yield "word", here, here.roll(1, -1)
    for i, name in enumerate(("example", "head", "row", "block")):
        there = [axis + one * (i == j) for j, axis in enumerate((example, head, row, block))]
        yield name, here, random_blocks(3, Purpose.CELL, *there)
    yield "purpose", here, random_blocks(3, Purpose.COUNT, example, head, row, block)
    yield "seed", here, random_blocks(4, Purpose.CELL, example, head, row, block)


@pytest.mark.statistical(share=0.004)
def test_neighbouring_addresses_are_uncorrelated(judge):
    # Neighbours among independent uniform words differ in each bit half of the time.
    judge(*(bit_p_values(here[..., :3] ^ there[..., :3]) for _, here, there in neighbours()))
