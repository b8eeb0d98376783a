"""`${NAME}` and `${NAME:-default}`, anywhere inside a string of gateway.toml.

Rules
1. As in a shell, a default stands in for a variable that is not set or empty. Without one either is a fault: an empty
   token or limit must be asked for (`${NAME:-}`), never happen.
2. What a variable holds is taken as it is, and not looked into for further references.
3. A message names the variable, and nothing that stands around it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config.values import Expanded

__all__ = ["expand"]

_REFERENCE = re.compile(r"\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Return `text` with its references replaced. Raises ValueError with one sentence."""
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if name is None:
            raise ValueError("expected ${NAME} or ${NAME:-default}, found another use of ${")
        held = environ.get(name, "")
        if held or default is not None:
            return held or default
        how = f"is empty; ${{{name}:-}} allows that" if name in environ else "is not set"
        raise ValueError(f"expected the environment variable {name}, which {how}")

    return Expanded.of(_REFERENCE.sub(value, text), text)
