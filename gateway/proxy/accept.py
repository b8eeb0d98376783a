"""Which form of a problem a caller can read: JSON unless it plainly prefers another (RFC 9110 section 12.5.1).

Rules
1. An absent, malformed or impossible Accept means JSON: an error answer is never itself an error.
2. Work is bounded: `LONGEST` octets and `MOST` ranges are read, and the rest is as if it had not been sent.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

__all__ = ["LONGEST", "MOST", "Form", "preferred"]

#: Octets of an Accept field that are read; browsers send about 150.
LONGEST: Final = 1024
#: Media ranges that are read.
MOST: Final = 32


class Form(IntEnum):
    """The forms, in the order in which a tie is decided."""

    JSON = 0
    MARKDOWN = 1
    HTML = 2


# How closely each range speaks of each form: an exact type outranks a subtype wildcard outranks any.
_RANGES: dict[bytes, tuple[tuple[Form, int], ...]] = {
    b"application/problem+json": ((Form.JSON, 4),),
    b"application/json": ((Form.JSON, 3),),
    b"application/*": ((Form.JSON, 2),),
    b"text/markdown": ((Form.MARKDOWN, 4),),
    b"text/html": ((Form.HTML, 4),),
    b"text/*": ((Form.MARKDOWN, 2), (Form.HTML, 2)),
    b"*/*": tuple((form, 1) for form in Form),
}
_JSON: Final = Form.JSON
_WEIGHT: Final = re.compile(rb"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


def preferred(accept: bytes | None) -> Form:
    """Return the form that `accept` prefers, given its field value or None."""
    # What nearly all say is known without looking it up.
    if not accept or accept == b"*/*" or accept == b"application/json":  # noqa: PLR1714 - a tuple would be made each time
        return _JSON
    return _parsed(accept[:LONGEST])


@lru_cache(maxsize=512)
def _parsed(accept: bytes) -> Form:
    closest = dict.fromkeys(Form, 0)
    weights = dict.fromkeys(Form, 0.0)
    for entry in accept.split(b",", MOST)[:MOST]:
        media, *parameters = (part.strip(b" \t") for part in entry.split(b";"))
        weight = _weight(parameters)
        for form, closeness in _RANGES.get(media.lower(), ()):
            if weight is not None and closeness > closest[form]:
                closest[form], weights[form] = closeness, weight
    return max(Form, key=lambda form: (weights[form], -form))


def _weight(parameters: list[bytes]) -> float | None:
    """Return the q of a range, 1 if it has none, None if it is not one."""
    for parameter in parameters:
        if parameter[:2].lower() == b"q=":
            weight = _WEIGHT.fullmatch(parameter)
            return float(weight[1]) if weight else None
    return 1.0
