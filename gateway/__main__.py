"""`python -m gateway` is `evenhand`."""

from __future__ import annotations

from gateway.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
