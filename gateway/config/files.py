"""Files that gateway.toml names: there, readable, and of the kind they should be, before anything is started.

Rules
1. An empty string names no file. Relative paths were made absolute before they come here.
2. What stands in a file is never quoted.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from gateway.config.values import parse_text, shown

__all__ = ["parse_authorities", "parse_key_set", "parse_readable", "tls_fault"]


def parse_readable(value: object) -> Path | None:
    """Parse the path of a file that can be read, "" being none."""
    if value == "":
        return None
    path = Path(parse_text(value))
    try:
        with path.open("rb"):
            return path
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no path"
        raise ValueError(f"expected a file that can be read, found {shown(value)}: {why}") from None


def parse_authorities(value: object) -> Path | None:
    """Parse the path of a PEM file of certificate authorities."""
    path = parse_readable(value)
    if path is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        except (OSError, ValueError):
            raise ValueError(f"expected a PEM file of certificate authorities, found {shown(value)}") from None
    return path


def parse_key_set(value: object) -> Path | None:
    """Parse the path of a JSON Web Key Set (RFC 7517 section 5)."""
    path = parse_readable(value)
    if path is not None and not _is_key_set(path):
        raise ValueError(f'expected a JSON file with a list of "keys" (RFC 7517), found {shown(value)}')
    return path


def _is_key_set(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    keys = document.get("keys") if isinstance(document, dict) else None
    return isinstance(keys, list) and bool(keys) and all(isinstance(key, dict) for key in keys)


def tls_fault(certificate: Path, key: Path) -> str | None:
    """Return why a listener could not present `certificate` with `key`, or None if it could."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError):
        return "expected PEM files of a certificate and its own unencrypted key, found some that do not go together"
    return None
