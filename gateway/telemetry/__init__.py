"""What is counted, and what can be read of it.

Reading order: `recorder.py` (stage 8, and what the others are for), `codebook.py` and `slots.py` (counting),
`windows.py`, `figures.py`, `labels.py`, `tenants.py` (reading), `catalog.py`, `gauges.py`, `metrics.py` (the
exposition), `lines.py`, `sink.py`, `decisions.py` (the log).
"""

from __future__ import annotations

from gateway.telemetry.recorder import Telemetry

__all__ = ["Telemetry"]
