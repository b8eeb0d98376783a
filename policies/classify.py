"""Facts and principal to route, class and the named policies that apply.

Rules
1. First match wins. A path is matched in its canonical form; what is forwarded is another's business.
2. `*` is exactly one segment, `**` the rest, only at the end: so matching takes time linear in the path, whoever wrote
   it. `/a/**` covers `/a` too, or a limit on it would be stepped around by leaving out a slash.
3. The class is the lowest of the route's (or the default), what the caller asked for, and the highest that its
   credential may use. A caller lowers its class and never raises it; asking for more is an attempt, and is counted.
4. A named policy applies if it covers the request and each characteristic of its key exists for this principal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from policies.cost import UNMATCHED, route_name
from policies.errors import PolicyError
from policies.policy import Characteristic, ClassRule, Mode, Policy, PolicySet, Route
from policies.request import Class, Kind, Principal, key_name

__all__ = ["Classifier", "applicable", "bounded", "bucket_of", "lowest", "path_pattern"]

#: Paths whose route a table remembers, and the longest of them: whatever callers ask for, it takes half a megabyte.
_MOST_PATHS: Final = 1024
_LONGEST_PATH: Final = 256

_CLASSES = {cls.label: cls for cls in Class}


def path_pattern(path: str) -> str:
    """Return the regular expression of a configured path. Raises PolicyError for a wildcard in the wrong place."""
    *inner, last = path.split("/")
    if any("*" in segment and segment != "*" for segment in (*inner, "" if last == "**" else last)):
        raise PolicyError("routes.path", f'"*" stands for a whole segment and "**" for the rest, in {path!r}')
    segments = ["[^/]+" if segment == "*" else re.escape(segment) for segment in inner]
    tail = "(?:/.*)?" if last == "**" else "/[^/]+" if last == "*" else "/" + re.escape(last)
    return "/".join(segments) + tail


class _Table:
    """The routes that take `method`, compiled into one expression; None is any method that no route names."""

    __slots__ = ("_known", "_pattern", "_routes")

    def __init__(self, routes: Sequence[Route], method: str | None) -> None:
        fitting = [
            index for index, route in enumerate(routes) if route.methods is None or (method and method in route.methods)
        ]
        alternatives = "|".join(f"({path_pattern(routes[index].path)})" for index in fitting)
        #: The alternation of the patterns, and the route of each group of it.
        self._pattern = re.compile(f"(?:{alternatives})\\Z", re.DOTALL)
        self._routes = tuple(fitting)
        #: Most are asked for again and again, and to remember one is ten times as fast as to match it.
        self._known: dict[str, int] = {}

    def route(self, path: str) -> int:
        """Return the index of the first route that matches, or UNMATCHED."""
        known = self._known.get(path)
        return self._match(path) if known is None else known

    def _match(self, path: str) -> int:
        match = self._pattern.match(path)
        route = UNMATCHED if match is None or not self._routes else self._routes[(match.lastindex or 0) - 1]
        if len(path) <= _LONGEST_PATH:
            if len(self._known) >= _MOST_PATHS:
                self._known.clear()
            self._known[path] = route
        return route


def _asked(field: str) -> list[Class]:
    """Return the classes named in an Evenhand-Class field; repeated fields come as one list. Other words are noise."""
    words = (word.strip().lower() for word in field.split(","))
    return [_CLASSES[word] for word in words if word in _CLASSES]


def lowest(classes: tuple[ClassRule, ...], among: Iterable[Class]) -> Class:
    """Return the lowest class of `among`: the greatest priority number, of equal ones the later in `Class`."""
    return max(among, key=lambda cls: (classes[cls].priority, cls))


class Classifier:
    """Routes and classes of one PolicySet, compiled. A path not seen lately is one match of one expression."""

    __slots__ = ("_any", "_by_method", "_classes", "_lowest", "_routes")

    def __init__(self, policies: PolicySet) -> None:
        self._classes = policies.classes
        # One more than there are routes: the last, reached as [UNMATCHED], is the default.
        classes = [route.cls for route in policies.routes] + [None]
        self._routes = tuple(policies.default_class if cls is None else cls for cls in classes)
        self._any = _Table(policies.routes, None)
        methods = {method for route in policies.routes for method in route.methods or ()}
        self._by_method = {method: _Table(policies.routes, method) for method in methods}
        self._lowest = tuple(tuple(lowest(policies.classes, (a, b)) for b in Class) for a in Class)

    def route(self, method: str, path: str) -> int:
        """Return the index of the first route that matches, or UNMATCHED."""
        return self._by_method.get(method, self._any).route(path)

    def cls(self, principal: Principal, route: int, asked: str | None) -> tuple[Class, bool]:
        """Return the request's class, and whether the caller asked for a higher one than it is permitted."""
        permitted = self._lowest[self._routes[route]][principal.highest]
        if asked is None:
            return permitted, False
        wanted = _asked(asked)
        result = lowest(self._classes, (permitted, *wanted))
        return result, any(self._lowest[permitted][want] is not want for want in wanted)


def applicable(policies: PolicySet, principal: Principal, cls: Class, route: int, method: str) -> tuple[Policy, ...]:
    """Return the named policies of a request that are not off, in the order they are configured."""
    name = route_name(policies, route)
    return tuple(
        policy
        for policy in policies.policies
        if policy.mode is not Mode.OFF
        and policy.match.covers(principal, cls, name, method)
        and _has(principal, policy.key)
    )


def _has(principal: Principal, key: tuple[Characteristic, ...]) -> bool:
    """Return whether `principal` has every characteristic: a project is a job's, a credential a user's."""
    if Characteristic.PROJECT in key and principal.kind is not Kind.JOB:
        return False
    return Characteristic.CREDENTIAL not in key or principal.kind is Kind.USER


def bucket_of(policies: PolicySet, policy: Policy, principal: Principal, cls: Class, route: int, address: str) -> str:
    """Name the bucket of a named policy. Requests that no route matched have the route "", and share what it keys.

    A credential or project is named with its tenant, or equal names of two tenants would share a bucket.
    """
    values = {
        Characteristic.ADDRESS: address,
        Characteristic.TENANT: principal.tenant,
        Characteristic.CREDENTIAL: principal.credential,
        Characteristic.PROJECT: principal.credential,
        Characteristic.ROUTE: route_name(policies, route),
        Characteristic.CLASS: cls.label,
    }
    wanted = set(policy.key)
    if wanted & {Characteristic.CREDENTIAL, Characteristic.PROJECT}:
        wanted.add(Characteristic.TENANT)
    named = {
        characteristic.value: values[characteristic] for characteristic in Characteristic if characteristic in wanted
    }
    return key_name(limit=policy.name, **named)


def bounded(policies: PolicySet, policy: Policy, principal: Principal) -> bool:
    """Return whether the bucket of a named policy is one of as many as the configuration has, whatever callers send."""
    tenant = policies.tenants.get(principal.tenant)
    unbounded = {Characteristic.ADDRESS, Characteristic.PROJECT}
    if tenant is None:
        unbounded |= {Characteristic.TENANT, Characteristic.CREDENTIAL}
    elif principal.credential not in tenant.credentials:
        unbounded.add(Characteristic.CREDENTIAL)
    return unbounded.isdisjoint(policy.key)
