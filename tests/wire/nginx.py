"""A real nginx as a second opinion: what it makes of the same octets, in front of the same kind of upstream."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FOUND", "nginx"]

#: Where it is, None on a machine without it.
FOUND = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

_CONFIG = """
daemon off;
master_process off;
error_log {folder}/error.log;
pid {folder}/pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  large_client_header_buffers 4 32k;
  upstream up {{ server {upstream}; keepalive 16; }}
  server {{
    listen {address} backlog=1024;
    location / {{
      proxy_pass http://up;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, upstream: str, port: int) -> Iterator[str]:
    """Run one in front of `upstream` (host:port); yield its address."""
    assert FOUND is not None
    folder.mkdir(exist_ok=True)
    address = f"127.0.0.1:{port}"
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, upstream=upstream, address=address), encoding="ascii")
    command = [FOUND, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
    with (folder / "stderr.txt").open("wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            assert process.poll() is None, (folder / "stderr.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
