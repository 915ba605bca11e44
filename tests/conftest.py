"""Fixtures and settings shared by several test files."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

from tests.statistics import Judge

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is first imported

# Modules that register a backend or a sampler, which then go through the tests of ours: see docs/how-to.
for module in os.environ.get("SBMT_TEST_WITH", "").split():
    importlib.import_module(module)

CHROMIUM = Path("/usr/bin/chromium")

# The same examples on every machine, and no deadline: it would be an assertion about time.
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def no_shape_checks_on_bad_input(request):
    """Switches the shape checker off for tests marked ``bad_input``, which expect the library's own errors."""
    is_bad = request.node.get_closest_marker("bad_input") is not None
    jaxtyping.config.update("jaxtyping_disable", is_bad)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def same_seed_for_every_test():
    """Seeds the global generator, so that a test's draws do not depend on earlier tests."""
    torch.manual_seed(0)


@pytest.fixture
def set_threads():
    """Sets the number of threads for the rest of the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def judge(request):
    """Returns the judge of a statistical test, with the share of false alarms that its mark claims."""
    return Judge(request.node.get_closest_marker("statistical").kwargs["share"])


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Starts a headless Chromium."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # GPU and shared memory are off, since containers often have neither.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield launched
        launched.close()
