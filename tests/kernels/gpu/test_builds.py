"""Kernels can be built for GPUs that are not here, and fit into their shared memory. Takes Triton, but no GPU."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sbmt.attention import tiles
from sbmt.kernels.gpu import is_interpreted
from tests.kernels.gpu.builds import build
from tests.kernels.gpu.launches import draw_launches, row_launches, tile_launches, transposing_launches

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or is_interpreted() or torch.cuda.is_available(),
    reason="needs Triton and neither its interpreter nor a GPU, where kernels are built anyway",
)
ROOT = Path(__file__).parents[3]
SHARED = {80: 166912, 89: 101376, 90: 232448}  # bytes that a block may have, by compute capability
SPILLED = 1500  # bytes of stack: a few numbers that do not fit into registers, not whole tiles


def assert_they_build(launches, capability, n_kernels):
    built = {launch.name: build(launch, capability) for launch in launches}
    assert len(built) == n_kernels
    for name, needs in built.items():
        assert needs.shared <= SHARED[capability], (name, needs)
        assert needs.spilled <= SPILLED and 0 < needs.registers <= 255, (name, needs)


@pytest.fixture
def chip(monkeypatch):
    """Tiles are those of a GPU of some compute capability."""
    from sbmt.kernels.gpu.tiles import launch as tile_launch

    def use(capability):
        monkeypatch.setattr(tile_launch, "has_warp_groups", lambda device: capability == 90)

    return use


@pytest.mark.parametrize("capability", SHARED)
@pytest.mark.parametrize(
    ("dtype", "d", "n_clusters", "is_poisson", "drawing"),
    [
        (torch.bfloat16, 32, 128, False, {}),
        (torch.bfloat16, 64, 128, True, dict(window=8, dropout=0.1)),
        (torch.float16, 128, 256, False, {}),
        (torch.float32, 32, 100, False, dict(dropout=0.1)),
        (torch.float32, 128, 256, True, {}),
    ],
)
def test_tiles(dtype, d, n_clusters, is_poisson, drawing, capability, chip):
    if SHARED[capability] < tiles.SHARED_BYTES and (d > tiles.SMALL_WIDTH or n_clusters > tiles.SMALL_CLUSTERS):
        pytest.skip("rows serve these there")
    chip(capability)
    launches = tile_launches(dtype, d, n_clusters, is_padded=is_poisson, is_poisson=is_poisson, **drawing)
    assert_they_build(launches, capability, n_kernels=6)


def test_counts_of_one():
    """Triton builds such numbers into kernels, which must not treat them as numbers that come at run time."""
    tiles = tile_launches(torch.bfloat16, 8, 1, window=1, dropout=0.5, heads=1, n=1)
    rows = row_launches(torch.bfloat16, 8, 1, is_dropped=True, has_terms=True, n_rows=1, n=1)
    for launch in [*tiles, *rows, *transposing_launches(1, 1), *draw_launches(1, is_poisson=True, n=1)]:
        build(launch, 90)


def test_tiles_of_the_usual_size(chip):
    """Registers hold all but a few numbers."""
    chip(90)
    for n_clusters in (64, 128):
        for launch in tile_launches(torch.bfloat16, 64, n_clusters):
            if "KEYS" not in launch.arguments:
                continue
            built = build(launch, 90)
            assert built.spilled <= (256 if launch.name == "differentiate_keys" else 64), launch.name


@pytest.mark.parametrize("capability", SHARED)
@pytest.mark.parametrize("is_gated", [True, False])
@pytest.mark.parametrize(("dtype", "d"), [(torch.bfloat16, 64), (torch.float32, 200), (torch.float64, 32)])
def test_rows(dtype, d, is_gated, capability):
    assert_they_build(row_launches(dtype, d, 128, is_gated=is_gated), capability, n_kernels=6)


@pytest.mark.parametrize("is_dropped", [True, False])
@pytest.mark.parametrize(("dtype", "d"), [(torch.bfloat16, 64), (torch.float64, 32)])
def test_rows_with_biases_and_sinks(dtype, d, is_dropped):
    launches = row_launches(dtype, d, 128, is_dropped=is_dropped, has_terms=True)
    assert_they_build(launches, 90, n_kernels=7)


def test_transposing():
    assert_they_build(transposing_launches(), 90, n_kernels=2)


@pytest.mark.parametrize("is_padded", [True, False])
def test_drawing(is_padded):
    for is_poisson in (True, False):
        launches = draw_launches(128, is_padded=is_padded, is_poisson=is_poisson)
        assert [launch.arguments["IS_COUNT"] for launch in launches] == [True, False]
        assert_they_build(launches, 90, n_kernels=1)


def test_the_published_registers_are_those_of_the_kernels():
    triton = pytest.importorskip("triton")
    from results.measure.gpu_builds import build_kernels

    published = json.loads((ROOT / "results" / "gpu_builds.json").read_text("utf-8"))
    if published["triton"] != triton.__version__:
        pytest.skip(f"they were built with triton {published['triton']}")
    assert build_kernels() == published["kernels"]
