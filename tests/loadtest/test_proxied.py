"""The comparison with the peers: what stands beside what, that it is measured, and what is written of it."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from loadtest.bench.proxied import chosen, run
from loadtest.peers import client, drawing, readme, report, targets
from loadtest.peers.about import sentence
from loadtest.peers.cells import ALL, CELLS, ENVOY, MANY, MATRIX, NGINX, OURS, Cell, Entry, Load
from loadtest.peers.contestants import CONTESTANTS, Contestant
from loadtest.peers.report import Row, Sample, ratio
from loadtest.peers.ring import Ring

__all__: list[str] = []


def row(name: str, *costs: float, cell: str = CELLS[0].name, load: Load | None = None, side: str = "") -> Row:
    """Return a row that cost so much in each round."""
    samples = tuple(Sample(cost, 1e6 / cost, 100.0, 900.0, 70.0, 1 / cost, 10_000, 0) for cost in costs)
    return Row(cell, name, load or Load(), samples, side)


def everything(cells: Sequence[Cell]) -> list[Row]:
    """Return a row for each entry of `cells`, ours at half of what a peer takes."""
    rows = [
        row(one.name, 20.0 if one.name == OURS else 40.0, cell=cell.name, load=one.load, side=one.side)
        for cell in cells
        for one in cell.entries
    ]
    return rows + [Row(cell.name, name, Load(), (), reason=why) for cell in cells for name, why in cell.absent]


def test_ratio_is_of_the_same_round() -> None:
    """A machine that slows down in the second round slows both, and the ratio stays what it is."""
    found = ratio(row(OURS, 10.0, 20.0, 11.0), row(ENVOY, 20.0, 40.0, 20.0))
    assert found is not None
    assert str(found) == "0.50 (0.50 to 0.55)"


def test_matrix_is_whole() -> None:
    """Bodies, connections, kept or not, and tenants in every combination, of everybody; and refusals."""
    proxied = [cell for cell in MATRIX if not cell.entries[0].load.refused]
    assert len({cell.entries[0].load for cell in proxied}) == len({cell.name for cell in proxied}) == 3 * 3 * 2 * 2
    assert all(tuple(entry.name for entry in cell.entries) == ALL for cell in proxied)
    refused = [cell for cell in MATRIX if cell.entries[0].load.refused]
    assert [cell.entries[0].load.connections for cell in refused] == [1, 64, 1000]
    assert all([name for name, _ in cell.absent] == ["caddy"] for cell in refused)


@pytest.mark.parametrize("cell", [*CELLS, *MATRIX], ids=lambda cell: cell.name)
def test_cell_compares_what_is_sent_alike(cell: Cell) -> None:
    """Everybody is known; sides come in pairs, and credentials of all sides from a file or of none."""
    assert {entry.contestant for entry in cell.entries} <= {one.name for one in CONTESTANTS}
    sides = {side: [one.name for one in cell.entries if one.side == side] for side in {e.side for e in cell.entries}}
    assert len({tuple(names) for names in sides.values()}) == 1
    assert len({bool(entry.load.tenants) for entry in cell.entries}) == 1
    assert len(sides) == len({entry.load for entry in cell.entries})


def test_every_target_is_of_two_rows_of_one_cell() -> None:
    """With everything measured, each target has an outcome, and those over a peer are what the rows say."""
    found = targets.outcomes(everything(CELLS))
    assert len(found) == 12
    assert {one.found.median for one in found if one.label.endswith("Envoy") and "p99" not in one.label} == {0.5, 1.0}


#: A peer that starts at once: the origin itself, which answers everything.
_PEER = (sys.executable, "-m", "loadtest.peers.origin")
_NGINX, _ENVOY = (Contestant(name, "", lambda _, port, __: [*_PEER, str(port)]) for name in (NGINX, ENVOY))
_OURS = Contestant(OURS, "", next(one for one in CONTESTANTS if one.name == "evenhand, pure Python").command)


def entry(name: str, load: Load, side: str = "") -> Entry:
    """Return an entry of a contestant of that name."""
    return Entry(name, name, load, side)


def test_matrix_and_pairs_are_measured_and_written(tmp_path: Path) -> None:
    """A few cells of every kind over real sockets, a tenth of a second each: JSON, tables, drawing, README."""
    few, many = Load(connections=3, tenants=1), Load(connections=3, tenants=5)
    cells = [
        Cell("kept", (entry(OURS, many), entry(NGINX, many))),
        Cell("large and new", (entry(OURS, Load("1 MB", 2, keep_alive=False)),)),
        Cell("refused", (entry(OURS, Load(connections=2, refused=True)),), absent=((ENVOY, "is not asked"),)),
        Cell("a pair", (entry(OURS, few, "one"), entry(OURS, many, "five"))),
    ]
    rows = run(cells, [_OURS, _NGINX], 1, 0.1, tmp_path / "proxied")
    read, said = report.read(tmp_path / "proxied.json")
    assert [(one.cell, one.name, one.side) for one in read] == [(one.cell, one.name, one.side) for one in rows]
    assert [one.failed for one in read] == [0] * len(read)
    assert all(len(one.samples) == 1 and one.middle() > 0 for one in read if not one.why)
    assert f"at commit {said['commit']} by `python -m loadtest.bench.proxied" in sentence(said)
    ET.parse(tmp_path / "proxied.svg")
    (tmp_path / "matrix.json").write_text(report.to_json(read[:3], said))
    places = "".join(
        f"<!-- measured: {one} -->\nold\n<!-- end of {one} -->\n" for one in ("proxied", "matrix", "costs")
    )
    text = readme.filled(f"before\n{places}after\n", readme.blocks(tmp_path))
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| **evenhand** |" in text
    assert "envoy: is not asked." in text
    assert readme.filled(text, readme.blocks(tmp_path)) == text
    # What is there is not measured again.
    assert run(cells, [], 1, 0.1, tmp_path / "proxied", resume=True) == read
    with pytest.raises(SystemExit, match="seconds differ"):
        run(cells, [], 1, 0.2, tmp_path / "proxied", resume=True)


def test_who_fails_is_named(tmp_path: Path) -> None:
    """A contestant that ends is out of its cell, with the reason; the other is measured."""
    ring, load = Ring(tmp_path, [_NGINX, _ENVOY]), Load(connections=2)
    try:
        ring.running[ENVOY].process.kill()
        ring.running[ENVOY].process.wait()
        good, bad = ring.measured(Cell("kept", (entry(NGINX, load), entry(ENVOY, load))), 2, 0.1)
    finally:
        ring.close()
    assert len(good.samples) == 2
    assert not good.why
    assert bad.why == "failed: it has ended, with code -9"
    assert "failed: it has ended" in report.cell_table([good, bad])
    assert "(1) envoy failed: it has ended, with code -9." in report.matrix_table([good, bad])


@pytest.mark.parametrize("seconds", [pytest.param(1.0, id="wrk"), pytest.param(0.5, id="own")])
async def test_client_takes_credentials_in_turn(seconds: float, tmp_path: Path) -> None:
    """From a file, from the line that is asked for on, and with the fields that one credential is sent with."""
    if seconds >= 1 and not shutil.which("wrk"):
        pytest.skip("wrk is not installed")
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    path = tmp_path / "credentials"
    path.write_text("a\nb\nc")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        asked = client.Asked(url, "none", 1, seconds, keep_alive=False, many=path, begin=1)
        seen = await asyncio.to_thread(client.run, asked, None)
    assert seen.requests > 3
    assert seen.errors == seen.other == 0
    found = [match[1] for head in heads if (match := re.search(r"Authorization: (\w+)", head))]
    # wrk tries the first one, and does not send it.
    assert "".join(found[:4]) == ("cabc" if seconds >= 1 else "bcab")
    assert all("Connection: close" in head and "Accept: application/json" in head for head in heads)


@pytest.mark.parametrize("make", [drawing.cells, drawing.matrix])
def test_drawing_is_whole_and_legible(make: Callable[[Sequence[Row]], str]) -> None:
    """Every cell is drawn for light and dark, nothing is written beyond an edge, and what is far off is cut off."""
    rows = everything(CELLS) if make is drawing.cells else everything(MATRIX)
    far = [row(one.name, 5000.0) if one.name == "uvicorn + httpx" else one for one in rows]
    drawn = drawing.cells(far) if make is drawing.cells else drawing.matrix(rows)
    assert "prefers-color-scheme: dark" in drawn
    page = ET.fromstring(drawn)
    width, height = float(page.attrib["width"]), float(page.attrib["height"])
    texts = [node for node in page.iter() if node.tag.endswith("text")]
    for node in texts:
        # Some six and a half units a letter, at twelve.
        x, length = float(node.attrib["x"]), 6.6 * len(node.text or "")
        left = x - {"start": 0.0, "middle": length / 2, "end": length}[node.attrib["text-anchor"]]
        assert left >= 0, node.text
        assert left + length <= width, node.text
        assert float(node.attrib["y"]) < height
    said = [node.text for node in texts]
    if make is drawing.cells:
        assert {cell.name for cell in CELLS} <= set(said)
        assert "5,000.0 »" in said
    else:
        assert said.count("0.50") == 2 * len(MATRIX)


def test_a_part_can_be_chosen() -> None:
    """By the place of a cell and by a contestant, whatever it is called in the cell."""
    (cell,) = chosen(CELLS, [6], ["evenhand, 10,000 tenants"], quick=False)
    assert [(one.name, one.load.tenants) for one in cell.entries] == [(OURS, MANY)]
    assert {cell.name for cell in chosen(CELLS, None, None, quick=True)} < {cell.name for cell in CELLS}


def test_place_for_what_was_measured_is_needed() -> None:
    """A file without a place for a block is not written, nor one with two."""
    place = "<!-- measured: matrix -->\n<!-- end of matrix -->\n"
    for text in ("", place * 2, place[:26]):
        with pytest.raises(ValueError, match="one place for matrix"):
            readme.filled(text, {"matrix": "x"})


def test_short_table_is_in_order(tmp_path: Path) -> None:
    """The README has the cheapest first, ours in bold, and what 1,000 connections make of it."""
    about = {"date": "", "commit": "", "command": "", "machine": "", "load": 0, "python": "", "packages": {}}
    about |= {"peers": {}, "client": "", "rounds": 1, "seconds": 1, "missing": ["caddy"]}
    rows = [one for one in everything(CELLS) if one.name != "caddy"]
    (tmp_path / "proxied.json").write_text(report.to_json(rows, about))
    lines = readme.blocks(tmp_path)["costs"].splitlines()
    assert lines[2] == "| **Evenhand**, compiled | **20.0 us** | **20.0 us** |"
    assert "| uvicorn and httpx, no limit at all | 40.0 us |  |" in lines
    assert not any("Caddy" in line for line in lines)
    assert lines[-1] == "With 1,000 connections a request costs 20.0 us, beside Envoy's 40.0 us."
    assert "Not installed, so not measured: caddy." in readme.blocks(tmp_path)["proxied"].replace("\n", " ")


@pytest.mark.parametrize("path", readme.PLACES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_readme_says_what_was_measured(path: Path) -> None:
    """The figures of both READMEs are what `python -m loadtest.peers.readme` makes of the results."""
    text = path.read_text(encoding="utf-8")
    found = readme.blocks(Path(__file__).parents[2] / "loadtest" / "results")
    for name in readme.PLACES[path]:
        # With a place for what is yet to be measured.
        block = found.get(name)
        assert f"<!-- measured: {name} -->" in text
        assert block is None or readme.filled(text, {name: block}) == text
