"""What lets users add a sampler or an attention of their own: options, and modules to import."""

import os
import sys
from collections.abc import Collection
from dataclasses import field
from importlib import import_module
from typing import Any

from sbmt.errors import SbmtError


def option(default: Any, help_: str, names: Collection[str] | None = None) -> Any:
    """A field that the command line offers, with a text for ``--help`` and the allowed names, if it is a name."""
    return field(default=default, metadata={"help": help_, "names": names})


def load_plugins() -> None:
    """Imports the modules that ``SBMT_PLUGINS`` names, separated by commas; SbmtError if one cannot be imported."""
    for name in os.environ.get("SBMT_PLUGINS", "").replace(",", " ").split():
        sys.path.append(os.getcwd())
        try:
            import_module(name)
        except Exception as error:  # a module may fail in any way while it is imported
            raise SbmtError(f"SBMT_PLUGINS names {name!r}, which cannot be imported: {error!r}") from error
