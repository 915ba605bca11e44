"""Where data are looked for, and where prepared examples are kept."""

import os
from pathlib import Path


def data_folder() -> Path:
    """Where a task's original files are looked for: ``$SBMT_DATA``, else ``data`` in the user's cache."""
    return Path(os.environ.get("SBMT_DATA") or _cache() / "data")


def prepared_folder() -> Path:
    """Where prepared examples are kept: ``$SBMT_CACHE``, else ``prepared`` in the user's cache."""
    return Path(os.environ.get("SBMT_CACHE") or _cache() / "prepared")


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("sbmt")
