"""What classes say to the compiler (hatch_build.py); to everybody else it means nothing.

- `allow_interpreted_subclasses`: code that is not compiled, such as a test, may derive from it.
- `acyclic`: nothing in it leads back to it, so the collector need not know of it. Only for classes that hold values.
- `trait`: a base class beside another one, of methods and attributes alone.
- `free_list_len=1`: the one that was freed last is the next one made; for what every request makes one of.
"""

from __future__ import annotations

__all__ = ["mypyc_attr", "trait"]

try:
    from mypy_extensions import mypyc_attr, trait
except ImportError:  # only whoever compiles needs it
    from collections.abc import Callable
    from typing import TypeVar

    _C = TypeVar("_C")

    def mypyc_attr(**_: object) -> Callable[[_C], _C]:  # type: ignore[misc] # its arguments are for the compiler alone
        """Change nothing."""
        return lambda cls: cls

    def trait(cls: _C) -> _C:
        """As above."""
        return cls
