"""Which history a gateway keeps: that of a file, or that of a shared store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.clock import Clock
from gateway.history.archive import Archive, FileArchive
from gateway.history.filed import FileHistory
from gateway.history.keeper import History
from gateway.history.schema import history_path
from policies.policy import PolicySet, Sized

if TYPE_CHECKING:
    from gateway.stores.calls import Calls

__all__ = ["archive_of", "open_history"]


def open_history(
    place: Path | Calls,
    max_keys: int,
    clock: Clock,
    policies: Callable[[], PolicySet],
    apply: Callable[[Mapping[str, Sized]], None],
) -> History:
    """Return the history kept beside the file of a store, or in a shared one; nothing is opened yet."""
    if isinstance(place, Path):
        return FileHistory(history_path(place), max_keys, clock, policies, apply)
    from gateway.history.shared.keeper import SharedHistory  # noqa: PLC0415 - with the library, which few need

    return SharedHistory(place, max_keys, clock, policies, apply)


def archive_of(place: Path | Calls) -> Archive:
    """Return what is written there."""
    if isinstance(place, Path):
        return FileArchive(history_path(place))
    from gateway.history.shared.archive import SharedArchive  # noqa: PLC0415 - with the library, which few need

    return SharedArchive(place)
