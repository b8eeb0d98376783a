"""Which records of a shared store lie together: the tag of a bucket.

Rules
1. The buckets of one tenant have its tag, so that one call can ask for all of them, in a cluster too.
2. Buckets that are not one tenant's (of addresses, of routes, those that overflow) are each their own tag: nothing that
   callers can multiply lies in one slot.
"""

from __future__ import annotations

from urllib.parse import unquote

__all__ = ["tag_of"]

_TENANT = "tenant="


def tag_of(bucket: str) -> str:
    """Return the tag of a bucket, or of a holder of seats, by the characteristics that its name is made of."""
    if "address=" in bucket:
        return bucket
    for characteristic in bucket.split(","):
        if characteristic.startswith(_TENANT):
            return unquote(characteristic[len(_TENANT) :])
    return bucket
