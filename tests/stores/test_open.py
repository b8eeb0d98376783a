"""Opening the configured store."""

from __future__ import annotations

from pathlib import Path

from gateway.config import load
from gateway.stores import open_store
from gateway.stores.memory import MemoryStore
from policies.kernels.fairshare import Shares
from policies.kernels.plain import PlainBackstop
from tests.clock import EPOCH
from tests.policies.documents import CLASSES

__all__: list[str] = []

MINIMAL = '[upstream]\nurl = "http://127.0.0.1:9"\n[backstop]\nquota = "100/s"\n'


def test_store_shares_fairly_unless_given_another_backstop(tmp_path: Path) -> None:
    """The default store is in memory with fair shares; the negative control replaces them."""
    path = tmp_path / "gateway.toml"
    path.write_text(MINIMAL, encoding="utf-8")
    loaded = load(path, {})
    store = open_store(loaded.settings, loaded.policies, lambda: EPOCH)
    assert isinstance(store, MemoryStore)
    assert isinstance(store.backstop, Shares)
    plain = PlainBackstop(1.0, 1.0, CLASSES, 1.0, EPOCH)
    assert open_store(loaded.settings, loaded.policies, lambda: EPOCH, plain).backstop is plain
