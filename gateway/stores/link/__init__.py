"""The link to a shared store (Redis or Valkey): our own pipelined connections, called with callbacks."""

from __future__ import annotations

from gateway.stores.link.faults import KINDS, StoreFault
from gateway.stores.link.script import Script, load_script

__all__ = ["KINDS", "Script", "StoreFault", "load_script"]
