"""What no two tables of gateway.toml may say together.

Rules
1. Names are compared as they stand in the tree, so an entry that is wrong elsewhere still counts as one of its name.
2. Amounts are compared between good entries only; what is wrong with the others was said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gateway.config.bursts import too_small
from gateway.config.document import Document
from gateway.config.drafts import Draft
from gateway.config.places import Finding, Place, walk
from gateway.config.sections import ServerSection, StoreSection
from gateway.config.suggest import nearest
from gateway.config.values import shown

__all__ = ["broken_rules"]

#: Of these keys exactly one must be there; an empty value counts as none.
_EXACTLY_ONE: tuple[tuple[Place, tuple[str, ...]], ...] = (
    (("upstream",), ("url", "urls")),
    (("upstreams", "*"), ("url", "urls")),
    (("auth", "jwt", "*"), ("jwks_url", "jwks_file", "secret")),
    (("auth", "job", "*"), ("jwks_url", "jwks_file", "secret")),
    (("exemptions", "*"), ("multiplier", "quota")),
)

_MAY_BE_EMPTY = frozenset({"urls", "jwks_file", "secret"})

#: Of these keys both are there, or neither; an empty value counts as none.
_TOGETHER: tuple[tuple[Place, tuple[str, str]], ...] = ((("server",), ("tls_certificate", "tls_key")),)

#: Names that stand once in all files, or (second column) once among the entries of the same table.
_UNIQUE: tuple[tuple[Place, int], ...] = (
    (("tenants", "*", "id"), 0),
    (("tenants", "*", "credentials", "*", "id"), 2),
    (("routes", "*", "name"), 0),
    (("policies", "*", "name"), 0),
    (("exemptions", "*", "name"), 0),
)

#: What refers to what: places of names, where these are defined, and how a sentence calls them.
_REFERENCES: tuple[tuple[Place, Place, str], ...] = (
    (("routes", "*", "upstream"), ("upstreams",), "[upstreams.NAME]"),
    (("policies", "*", "match", "route"), ("routes", "*", "name"), "route"),
    (("exemptions", "*", "match", "route"), ("routes", "*", "name"), "route"),
    (("exemptions", "*", "policies", "*"), ("policies", "*", "name"), "policy"),
)


def broken_rules(document: Document, made: Draft) -> Iterator[Finding]:
    """Yield all that the tables of a document contradict each other in."""
    for of_names in _OF_NAMES:
        yield from of_names(document)
    for of_amounts in _OF_AMOUNTS:
        yield from of_amounts(made)


def _one_each(document: Document) -> Iterator[Finding]:
    for pattern, keys in _EXACTLY_ONE:
        for place, table in walk({"upstream": {}} | document.tree, pattern):
            if not isinstance(table, dict):
                continue
            there = [key for key in keys if table.get(key) not in ("", [], None)]
            choice = f"{', '.join(keys[:-1])} or {keys[-1]}"
            if not there:
                empty = [key for key in keys if key in table]
                if _MAY_BE_EMPTY.issuperset(empty):  # of any other its parser has said that it is empty
                    yield (*place, (empty or keys)[0]), f"expected one of {choice}, found {_none_of(empty)}"
            elif len(there) > 1:
                yield (*place, there[1]), f"expected only one of {choice}, found {' and '.join(there)}"


def _none_of(empty: list[str]) -> str:
    return f"{' and '.join(empty)} empty" if empty else "none"


def _together(document: Document) -> Iterator[Finding]:
    """Tell of one that is missing beside another, whatever else is wrong with that."""
    for pattern, keys in _TOGETHER:
        for place, table in walk(document.tree, pattern):
            there = [key for key in keys if isinstance(table, dict) and table.get(key) not in ("", None)]
            if len(there) == 1:
                missing = next(key for key in keys if key not in there)
                yield (*place, missing), f"expected a file beside {there[0]}, found none"


def _unique(document: Document) -> Iterator[Finding]:
    for pattern, scope in _UNIQUE:
        first: dict[tuple[Place, str], Place] = {}
        for place, name in walk(document.tree, pattern):
            if isinstance(name, str) and first.setdefault((place[:scope], name), place) != place:
                there = document.spoken(first[place[:scope], name])
                yield place, f"expected {pattern[-1]}s that differ, found {shown(name)}, which is {there} too"


def _one_owner(document: Document) -> Iterator[Finding]:
    """Let a token prove one credential only."""
    first: dict[str, Place] = {}
    for place, pat in walk(document.tree, ("tenants", "*", "credentials", "*", "pat")):
        digests = enumerate(pat) if isinstance(pat, list) else [(None, pat)]
        for index, digest in digests:
            here = place if index is None else (*place, index)
            if isinstance(digest, str) and first.setdefault(digest, here) != here:
                yield here, f"expected a token of its own, found that of {document.spoken(first[digest])}"


def _known(document: Document) -> Iterator[Finding]:
    for pattern, names, noun in _REFERENCES:
        known = set(_strings(document.tree, names))
        for place, name in walk(document.tree, pattern):
            if isinstance(name, str) and name not in known:
                yield place, f"expected the name of a known {noun}, found {shown(name)}{nearest(name, known)}"


def _strings(tree: Any, pattern: Place) -> Iterator[str]:
    for _, value in walk(tree, pattern):
        yield from (name for name in (value if isinstance(value, dict) else [value]) if isinstance(name, str))


def _shared_store(made: Draft) -> Iterator[Finding]:
    server, store = (made.parts.get((name,)) for name in ("server", "store"))
    workers = server.workers if isinstance(server, ServerSection) else 1
    memory = store.url == "memory:" if isinstance(store, StoreSection) else "store" not in made.tree
    if workers > 1 and memory:
        yield (
            ("server", "workers"),
            f"expected 1, since [store] url is memory:, which no two processes share, found {workers}",
        )


_OF_NAMES: tuple[Callable[[Document], Iterator[Finding]], ...] = (_one_each, _together, _unique, _one_owner, _known)
_OF_AMOUNTS: tuple[Callable[[Draft], Iterator[Finding]], ...] = (_shared_store, too_small)
