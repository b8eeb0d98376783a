"""What classes say to the compiler means nothing to whoever does not compile."""

from __future__ import annotations

import runpy
import sys

import pytest

import policies.native

__all__: list[str] = []


def test_nothing_is_needed_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiler's package both decorators return the class that they are given."""
    monkeypatch.setitem(sys.modules, "mypy_extensions", None)
    native = runpy.run_path(policies.native.__file__)

    class Some:
        """Any class."""

    assert native["mypyc_attr"](acyclic=True, free_list_len=1)(Some) is Some
    assert native["trait"](Some) is Some
