"""The ASGI endpoint without WebSockets, under both of uvicorn's parsers and with a WebSocket protocol or none."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import websockets
from websockets.asyncio.client import connect

from tests.gateway.proxy.house import A
from tests.gateway.proxy.served import Http, served

__all__: list[str] = []


@pytest.mark.parametrize("ws", ["websockets-sansio", "none"])
@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_websockets_are_denied_as_http(
    tmp_path: Path, http: Http, ws: Literal["websockets-sansio", "none"]
) -> None:
    """501 before the upgrade, counted under whom the credential proved; a bad credential is 401."""
    async with served(tmp_path, "http://127.0.0.1:9", http, ws=ws, takes_sockets=False) as gateway:
        for token, status in ((A.token, 501), ("evh_pat_wrong", 401)):
            with pytest.raises(websockets.InvalidStatus) as denied:
                await connect(f"ws://{gateway.address}/live", additional_headers={"Authorization": f"Bearer {token}"})
            assert denied.value.response.status_code == status
            assert denied.value.response.headers["content-type"] == "application/problem+json"
        assert gateway.books.ends == [("rejected", 501, ""), ("rejected", 401, "")]
