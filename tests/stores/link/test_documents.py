"""What docs/store.md tells operators holds."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.config.sections import StoreSection
from gateway.stores.link import KINDS, load_script
from gateway.stores.link.sync import open_client
from gateway.stores.names import Names
from tests.stores.link.linked import INCR, NAMES, linked, run
from tests.wire.redis import RedisServer

__all__: list[str] = []

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
ACL = [line.split() for line in TEXT.splitlines() if line.startswith("ACL SETUSER evenhand ")]
#: Commands as our sources name them: in scripts, and in the words that threads send.
IN_LUA = re.compile(r"redis\.p?call\(['\"]([A-Z]+)['\"]")
IN_PYTHON = re.compile(r"(?:ask\(|\()\"([A-Z]{3,})\", (?!url)")


def rights() -> set[str]:
    """Return the commands that the documented user may send."""
    return {word[1:].partition("|")[0] for words in ACL for word in words if word.startswith("+")}


def test_every_kind_of_failure_is_explained() -> None:
    """In the first table, and nothing that is none."""
    rows = [line.partition("|")[2].partition("|")[0] for line in TEXT.splitlines() if line.startswith("| `")]
    kinds = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}
    assert set(KINDS) <= kinds


def test_the_documented_user_may_do_what_we_do() -> None:
    """Every command of a script, and of what threads send, is among its rights."""
    folder = ROOT / "gateway" / "stores"
    scripts = [path.stem for path in (folder / "lua").glob("*.lua")]
    used = {word for name in scripts for word in IN_LUA.findall(load_script(name).source.decode())}
    for path in (folder / "usage.py", folder / "registry_shared.py", folder / "calls.py", *_shared_history()):
        used |= set(IN_PYTHON.findall(path.read_text(encoding="utf-8")))
    assert len(used) > 20
    assert {word.lower() for word in used} - rights() == set()


def _shared_history() -> list[Path]:
    return sorted((ROOT / "gateway" / "history" / "shared").glob("*.py"))


async def test_the_documented_user_is_let_in(redis_server: RedisServer) -> None:
    """By link and by thread, without one refused command; and to nobody else's names."""
    for words in ACL:
        redis_server.ask(*[word.replace("PASSWORD", "pw") for word in words])
    redis_server.ask("ACL", "LOG", "RESET")
    url = f"redis://evenhand:pw@127.0.0.1:{redis_server.port}"
    try:
        async with linked(url) as link:
            assert await run(link, INCR, [NAMES.key("a", "key")], b"x") == [1, b"x"]
            client = open_client(StoreSection(url=url))
            assert client.hgetall(NAMES.key("a", "rows")) == {}
            client.close()
            assert redis_server.ask("ACL", "LOG") == []
            assert (await run(link, INCR, [Names("other").key("a", "key")], b"x")).kind == "auth"
    finally:
        redis_server.ask("ACL", "DELUSER", "evenhand")
