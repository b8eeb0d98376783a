"""What a link counts: commands sent and faults met, over all its connections."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.stores.link.faults import KINDS, StoreFault

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Each fault is counted once, where it occurs: an error reply, a call given up, a connection lost or not made."""

    commands: int = 0
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def note(self, fault: StoreFault) -> None:
        """Count a fault."""
        self.errors[fault.kind] += 1
