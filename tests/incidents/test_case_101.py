"""Case 101: the route that is checked, charged and limited is the route that is served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

#: Ways to /admin that begin like /open, or look like neither.
WAYS = [
    "/open/../admin", "/open/%2e%2e/admin", "/open/.%2e/admin", "/open/%2e./admin", "/open/%2E%2E/admin",
    "/open/..%2fadmin", "/open%2f..%2fadmin", "/open/..%5cadmin", "/open/..\\admin", "/open\\..\\admin",
    "/open/x/../../admin", "/open/./../admin", "/open;x/../admin", "/open/;x/../admin", "/open/..;x/admin",
    "/open/..;/admin", "//admin", "///admin", "/./admin", "/.//admin", "/open//../admin", "/%2fadmin", "/%2Fadmin",
    "/%5cadmin", "/\\admin", "/admin/", "/admin%2f", "/admin%2f..", "/admin/.", "/admin/..", "/admin;x", "/admin;x=y",
    "/admin%3bx", "/admin%00", "/admin%00.html", "/%00/admin", "/admin.", "/admin%2e", "/admin%20", "/admin%09",
    "/%61dmin", "/%61%64%6d%69%6e", "/%2561dmin", "/open/%252e%252e/admin", "/open/%25252e%25252e/admin",
    "/admin?x", "/admin?/open", "/open?/admin", "/admin#x", "/open#/../admin", "/ADMIN", "/Admin", "/adm%69n",
    "http://a/admin", "http://a//admin", "http://a/open/../admin", "http://a/open/%2e%2e/admin", "/admin%", "/admin%2",
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway that counts /open and /admin apart, and lets nobody into /admin."""
    config = {
        "routes": [
            {"name": "admin", "path": "/admin/**"},
            {"name": "admin-itself", "path": "/admin"},
            {"name": "open", "path": "/open/**"},
        ],
        "policies": [
            {"name": f"no-{route}", "match": {"route": route}, "key": ["tenant"], "quota": "0/s"}
            for route in ("admin", "admin-itself")
        ],
        "tenants": tenants("a", quota="100000/s burst 100000"),
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


async def test_no_way_around_the_rule_of_a_route(gateway: Gateway, up: Origin) -> None:
    """Whatever an upstream would take for /admin is refused by its policy or ambiguous; nothing else arrives."""
    async with balanced(gateway, up) as books:
        for way in WAYS:
            before = len(up.seen)
            answer = await call(gateway.address, request(target=way, token=token("a")))
            arrived = [seen.target.decode() for seen in up.seen[before:]]
            if answer.status == 400:
                books.rejected()
            else:
                books.sent("a")
                assert answer.status in {200, 429}, (way, answer)
            assert arrived == ([] if answer.status != 200 else [way.removeprefix("http://a")]), way
            if answer.status == 200:
                assert not leads_to_admin(arrived[0]), way


def leads_to_admin(target: str) -> bool:
    """Return whether some server would serve /admin for `target`: parameters go first, then escapes.

    Servers that decode twice, or ignore case, dots or blanks, read more into a path; who runs one lists those too.
    """
    path = re.split(r"[?#]", target)[0]
    path = unquote("/".join(part.partition(";")[0] for part in path.split("/")), "latin-1")
    segments: list[str] = []
    for part in re.split(r"[/\\\0]", path):
        if part == "..":
            segments = segments[:-1]
        elif part not in {"", "."}:
            segments.append(part)
    return segments[:1] == ["admin"]


async def test_the_rule_holds_for_the_plain_way(gateway: Gateway, up: Origin) -> None:
    """Or the test above would prove nothing."""
    async with balanced(gateway, up) as books:
        for target, status in (("/admin", 429), ("/admin/x", 429), ("/open/x", 200)):
            assert (await call(gateway.address, request(target=target, token=token("a")))).status == status
            books.sent("a")
    assert leads_to_admin("/open/%2e%2e/admin;x")
    assert not leads_to_admin("/open/admin")
