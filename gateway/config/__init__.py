"""gateway.toml: read, checked, frozen.

Reading order: `loader.py` (all of it, in order), `values.py` and its like (what one value may be), `sections.py`,
`auth.py`, `entries.py` (which keys there are), `document.py` (files to one tree), `drafts.py` (the tree, table by
table), `rules.py` (what no two tables may say together), `build.py` (to the documents of the core).
"""

from __future__ import annotations

from gateway.config.loader import Loaded, load
from gateway.config.settings import Settings

__all__ = ["Loaded", "Settings", "load"]
