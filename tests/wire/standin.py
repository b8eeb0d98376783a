"""A stand-in for the gateway, to test what tests the gateway: it forwards, counts, and has one fault if told so.

`$STANDIN_FAULT` is one of `lost` (a request is not counted), `invented` (one counted as served never arrived),
`stuck` (in flight never returns to 0), `own-500`, `traceback`, `exit` (code 3) or empty.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

from tests.wire.origin import Origin, Seen
from tests.wire.script import Answer

__all__: list[str] = []


class Standin:
    """Two listeners and a count."""

    def __init__(self, config: dict[str, Any], fault: str) -> None:
        self.served, self.fault = 0, fault
        self.upstream = config["upstream"]["url"].removeprefix("http://")
        self.log = Path(config["telemetry"]["decision_log"])
        ports = [int(config["server"][name].rpartition(":")[2]) for name in ("listen", "admin")]
        self.data, self.admin = (Origin(port=port) for port in ports)
        self.data.on("/", self.forward)
        self.admin.on("/api/fairness", self.fairness)
        self.admin.on("/metrics", self.metrics)

    def forward(self, seen: Seen) -> Answer:
        """Count and forward one request, all of tenant `a`."""
        self.served += self.fault != "lost" or self.served == 0
        if self.fault == "own-500":
            self.log.write_text(json.dumps({"status": 500}) + "\n", encoding="utf-8")
        if self.fault == "traceback":
            sys.stderr.write("Traceback (most recent call last):\n")
            sys.stderr.flush()
        if self.fault != "invented":
            connection = http.client.HTTPConnection(self.upstream)
            connection.request(seen.method, seen.target.decode(), headers={"Evenhand-Tenant": "a"})
            connection.getresponse().read()
            connection.close()
        return Answer()

    def fairness(self, _: Seen) -> Answer:
        """Answer `/api/fairness`."""
        row = {"tenant": "a", "offered": self.served, "served": self.served, "upstream_error": 0, "aborted": 0}
        return Answer(body=json.dumps({"tenants": [{**row, "refused": {}}]}).encode())

    def metrics(self, _: Seen) -> Answer:
        """Answer `/metrics`."""
        text = f'evenhand_requests_total{{tenant="a",class="interactive",outcome="served"}} {self.served}\n'
        text += f"evenhand_in_flight {int(self.fault == 'stuck')}\n"
        return Answer(body=text.encode(), ending="close")


def main() -> None:
    """Serve until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    config = tomllib.loads(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    fault = os.environ.get("STANDIN_FAULT", "")
    standin = Standin(config, fault)
    standin.data.start()
    standin.admin.start()
    ended.wait()
    standin.data.stop()
    standin.admin.stop()
    sys.exit(3 if fault == "exit" else 0)


if __name__ == "__main__":
    main()
