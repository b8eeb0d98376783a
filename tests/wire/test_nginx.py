"""The grid through a real nginx: where it and the gateway part, the difference is one that docs/wire.md explains."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.wire.caller import Caller
from tests.wire.gateway import ROOT, free_port
from tests.wire.grid import GRID, Row
from tests.wire.nginx import FOUND, nginx
from tests.wire.origin import Origin, serving
from tests.wire.test_grid import filled

__all__: list[str] = []

#: What nginx takes and we refuse: a pattern of row names -> the words by which docs/wire.md explains it.
LAXER = {
    r"line: (no version|HTTP/1\.2|HTTP/1\.10|a space behind the version)": "Versions",
    r"line: two spaces .*": "Two spaces",
    r"line: a method (nobody knows|and more)": "Methods",
    r"(line|field): .*(LF|CR CR).*|field: name with 0x0a|framing: .* behind a bare LF": "Line ends",
    r"target: .*": "Targets",
    r"field: no colon|field: name with b.*": "Field names",
    r"field: value with .*": "Control octets",
    r"host: .*": "Host",
    r"chunk: .*": "Chunks",
    r"field: Expect .*": "Expectations",
    r"field: half a WebSocket handshake": "Handshakes",
}
#: What nginx refuses and we take, because the RFC says so.
STRICTER = {
    "framing: a length around spaces": "Tabs around a value",
    "framing: chunked behind a tab": "Tabs around a value",
    "target: *": "OPTIONS with an asterisk",
}


async def through(address: str, up: Origin, row: Row) -> bool:
    """Return whether nginx passes a row on; if it does, what it passes on must be the row's request."""
    up.forget()
    async with await Caller.connect(address) as caller:
        await caller.send(filled(row.octets))
        try:
            answer = await caller.response(row.method, 5.0)
        except TimeoutError:
            return False
    if answer.status >= 400:
        return False
    if row.passes:
        # What was hidden behind the row before may arrive only now.
        first = next(seen for seen in up.seen if seen.target != b"/hidden")
        assert (first.method, first.target, bytes(first.body)) == (row.method, row.target, row.body), row.name
    return True


@pytest.mark.skipif(FOUND is None and not os.environ.get("CI"), reason="nginx is not installed here")
async def test_differences_are_explained(tmp_path: Path) -> None:
    """Each row on which the two differ belongs to a group that the guide explains, and each group has a row."""
    guide = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    used: set[str] = set()
    with serving() as up, nginx(tmp_path / "nginx", up.address.removeprefix("http://"), free_port()) as address:
        for row in GRID:
            passed = await through(address, up, row)
            if passed == row.passes:
                continue
            if passed:
                group = next((words for pattern, words in LAXER.items() if re.fullmatch(pattern, row.name)), None)
            else:
                group = STRICTER.get(row.name)
            assert group, f"{row.name} ({row.clause}): nginx {'takes' if passed else 'refuses'} it, and nobody says why"
            used.add(group)
    assert used == {*LAXER.values(), *STRICTER.values()}
    assert all(f"**{words}**" in guide for words in used), [words for words in used if f"**{words}**" not in guide]
