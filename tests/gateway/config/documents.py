"""gateway.toml of tests: whatever a test is not about is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.config import Loaded, load
from gateway.errors import ConfigError

__all__ = ["NOW", "VALID_PAT", "failures", "loaded", "written"]

VALID_PAT = "sha256:" + "0123456789abcdef" * 4

#: Long before any expiry in a test.
NOW = 1_700_000_000_000_000


def written(folder: Path, text: str, name: str = "gateway.toml") -> Path:
    """Write a document to `folder`, with the two required keys where `text` leaves their sections out."""
    if "[upstream]" not in text:
        text += '\n[upstream]\nurl = "http://127.0.0.1:9000"\n'
    if "[backstop]" not in text:
        text += '\n[backstop]\nquota = "100/s"\n'
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str = "", environ: Mapping[str, str] | None = None) -> Loaded:
    """Load a document that is good."""
    return load(written(folder, text), environ or {}, NOW)


def failures(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Load a document that is not, and return its faults as they are printed, the folder's name left out."""
    try:
        load(written(folder, text), environ or {}, NOW)
    except ConfigError as error:
        return [str(fault).replace(f"{folder}/", "") for fault in error.faults]
    return []
