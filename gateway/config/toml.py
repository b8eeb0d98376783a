"""Reading one TOML file: whatever is wrong with it becomes one sentence with file, line and column."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

from gateway.config.places import dotted
from gateway.errors import ConfigError, Fault

__all__ = ["read_toml"]

# tomllib names a key by the repr of its parts.
_KEYS = re.compile(r"\(['\"].*['\"],?\)", re.DOTALL)
_WHERE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
#: A file of this size holds a hundred thousand tenants; a larger one is a device or a mistake.
_LARGEST = 64 << 20


def read_toml(path: Path, name: str) -> dict[str, Any]:
    """Return the tree of `path`, which messages call `name`. Raises ConfigError with one fault."""
    try:
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise _error(name, f"expected a file of at most {_LARGEST >> 20} MiB, found a larger one")
        if path.is_dir():
            raise _error(name, "expected a file, found a folder")
        octets = path.read_bytes()
    except FileNotFoundError:
        raise _error(name, "expected a file that is there, found none by this name") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no path"
        raise _error(name, f"expected a file that can be read, found that it cannot: {why}") from None
    return _parsed(octets, name)


def _parsed(octets: bytes, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(octets.removeprefix(b"\xef\xbb\xbf").decode())
    except UnicodeDecodeError as error:
        raise _error(name, f"{_position(octets, error.start)}: not TOML: an octet that is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        found = _WHERE.fullmatch(str(error))
        what, line, column = found.groups() if found else (str(error), None, None)
        what = _KEYS.sub(_as_written, what)
        where = f"line {line}, column {column}" if line else _position(octets, len(octets))
        raise _error(name, f"{where}: not TOML: {what[:1].lower()}{what[1:]}") from None
    except (RecursionError, ValueError):
        raise _error(name, f"{_position(octets, 0)}: not TOML: nesting or numbers beyond measure") from None


def _as_written(keys: re.Match[str]) -> str:
    return dotted(ast.literal_eval(keys[0]))


def _position(octets: bytes, offset: int) -> str:
    before = octets[:offset].decode(errors="replace")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _error(name: str, message: str) -> ConfigError:
    return ConfigError((Fault(name, message),))
