"""From files to one tree: TOML, `include`, `${NAME}`, relative paths; and back from a place in the tree to its file.

Rules
1. Arrays of tables of included files are appended, tables are joined; a key that two files set is a fault of both.
2. A value that cannot be resolved is a fault of its own; whatever else would be said of it is not said.
3. Only the main file includes. A pattern without a wildcard must name a file that is there.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config.places import Place, dotted, lone_arrays
from gateway.config.references import expand
from gateway.config.toml import read_toml
from gateway.config.values import Expanded, shown
from gateway.errors import ConfigError, Fault

__all__ = ["Document", "read_document"]

#: Keys whose values are files beside the TOML file that names them (contract, section 3).
_FILE_KEYS = frozenset({"ca_file", "jwks_file", "tls_certificate", "tls_key"})
#: Deeper than any key of ours; with dotted keys a file could nest without end.
_DEEPEST = 12


@dataclass
class Document:
    """The tree of all files together, and where each of its parts came from. `name` is the main file's."""

    name: str
    tree: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    _origins: dict[Place, tuple[str, Place]] = field(default_factory=dict)
    _unresolved: set[tuple[str, Place]] = field(default_factory=set)

    def origin(self, place: Place) -> tuple[str, Place]:
        """Return the file that `place` of the tree comes from, and its place in there."""
        for length in range(len(place), 0, -1):
            if (found := self._origins.get(place[:length])) is not None:
                return found[0], (*found[1], *place[length:])
        return self.name, place

    def fault(self, place: Place, message: str) -> Fault | None:
        """Return a fault at `place` of the tree, or None if that value was never resolved, which was said."""
        file, local = self.origin(place)
        if any(file == other and _overlap(local, silent) for other, silent in self._unresolved):
            return None
        return self._fault(file, local, message)

    def spoken(self, place: Place) -> str:
        """Return `place` of the tree for the inside of a sentence, with the name of its file."""
        file, local = self.origin(place)
        return f"{dotted(local)} in {file}"

    def add(self, table: dict[str, Any], file: str, folder: Path, environ: Mapping[str, str]) -> None:
        """Take in what one file holds; `folder` is what its relative paths start from."""
        self._join(self.tree, self._resolve(table, file, folder, environ, ()), file, (), ())

    def _fault(self, file: str, local: Place, message: str) -> Fault:
        return Fault(dotted(local) if file == self.name else f"{file}: {dotted(local)}", message)

    def _resolve(self, value: Any, file: str, folder: Path, environ: Mapping[str, str], local: Place) -> Any:
        """Return `value` with references and relative paths replaced."""
        if len(local) > _DEEPEST:
            self.faults.append(self._fault(file, local[:3], "expected a value, found tables within tables without end"))
            self._unresolved.add((file, local[:3]))
            return None
        if isinstance(value, dict):
            return {key: self._resolve(held, file, folder, environ, (*local, key)) for key, held in value.items()}
        if isinstance(value, list):
            return [self._resolve(held, file, folder, environ, (*local, n)) for n, held in enumerate(value)]
        return self._text(value, file, folder, environ, local) if isinstance(value, str) else value

    def _text(self, text: str, file: str, folder: Path, environ: Mapping[str, str], local: Place) -> str:
        try:
            text = expand(text, environ)
        except ValueError as error:
            self.faults.append(self._fault(file, local, str(error)))
            self._unresolved.add((file, local))
        if text and local[-1] in _FILE_KEYS:
            joined = str(folder / text)
            return Expanded.of(joined, text.source) if isinstance(text, Expanded) else joined
        return text

    def _join(self, into: dict[str, Any], table: dict[str, Any], file: str, at: Place, local: Place) -> None:
        for key, value in table.items():
            there, here = (*at, key), (*local, key)
            if key not in into:
                into[key] = value
                self._origins[there] = file, here
            elif isinstance(into[key], dict) and isinstance(value, dict):
                self._join(into[key], value, file, there, here)
            elif _is_tables(into[key]) and _is_tables(value):
                for index, entry in enumerate(value):
                    self._origins[*there, len(into[key])] = file, (*here, index)
                    into[key].append(entry)
            elif {list, dict} == {type(into[key]), type(value)} and (below := lone_arrays(value, here)):
                self.faults.append(self._fault(file, here, below))
            else:
                self.faults.append(self._fault(file, here, f"expected to be set once, found {self.spoken(there)} too"))


def _overlap(one: Place, other: Place) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Read `path` and what it includes. Raises ConfigError if `path` itself cannot be read; all else is collected."""
    document = Document(str(path))
    document.add(read_toml(path, document.name), document.name, path.absolute().parent, environ)
    for file in _included(document, path):
        name = _name(file, path)
        try:
            table = read_toml(file, name)
        except ConfigError as error:
            document.faults.extend(error.faults)
            continue
        if table.pop("include", None) is not None:
            document.faults.append(
                Fault(f"{name}: include", f"expected in {path} only, found in a file that it includes")
            )
        document.add(table, name, file.absolute().parent, environ)
    return document


def _included(document: Document, main: Path) -> Iterator[Path]:
    """Yield each file that `include` names once, in the order of its patterns, then by name."""
    patterns = document.tree.get("include", [])
    seen = {main.resolve()}
    for index, pattern in enumerate(patterns if isinstance(patterns, list) else []):
        if not isinstance(pattern, str) or not pattern or "\0" in pattern:
            continue  # the model says so
        # Not Path.glob: it matches hidden files, which editors leave behind, and takes no absolute pattern.
        found = sorted(glob.glob(pattern, root_dir=main.absolute().parent, recursive=True))  # noqa: PTH207 - see above
        if not found and not glob.has_magic(pattern):
            fault = document.fault(
                ("include", index), f"expected a file that is there, found none by the name {shown(pattern)}"
            )
            document.faults += [fault] if fault else []
        for name in found:
            file = main.parent / name
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _name(file: Path, main: Path) -> str:
    """Return how messages call an included file: as `include` would, from the main file's folder."""
    return str(file.relative_to(main.parent)) if file.is_relative_to(main.parent) else str(file)
