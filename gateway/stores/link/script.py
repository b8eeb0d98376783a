"""Lua scripts as files, known to a server by their digest."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["Script", "load_script"]

_INCLUDE = re.compile(rb"(?m)^-- include (\w+)$")


@dataclass(frozen=True, slots=True)
class Script:
    """A script. `sha` is the hexadecimal SHA-1 of `source`, by which EVALSHA calls it (no secret hangs on it)."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def of(cls, name: str, source: bytes) -> Script:
        """Return the script of that source."""
        return cls(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode("ascii"))


@cache
def load_script(name: str) -> Script:
    """Return the script of `gateway/stores/lua/NAME.lua`; FileNotFoundError if there is none.

    A line `-- include OTHER` stands for the whole of `OTHER.lua`.
    """
    source = (resources.files("gateway.stores") / "lua" / f"{name}.lua").read_bytes()
    return Script.of(name, _INCLUDE.sub(lambda found: load_script(found[1].decode()).source, source))
