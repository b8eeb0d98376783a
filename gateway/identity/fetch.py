"""Fetching a small JSON document that an operator named, without lending our position in the network to anybody.

Rules
1. The address comes from the configuration, never from a token, and is resolved afresh for every fetch. Every address
   that its name has must be public, unless `allow_private`; the connection then goes to the very address that was
   looked at, so that a name which answers differently a moment later (DNS rebinding) gains nothing. The certificate is
   still that of the name.
2. Nothing is followed: a redirect is a failure. No proxy of the environment is used, for it would resolve by itself.
3. Bounded: `MAX_BYTES` octets, no content coding (which could unpack to any size), `TIMEOUT_SECONDS` in all.
4. What failed is told in a sentence of our own that quotes nothing of the answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpx

from gateway.errors import GatewayError

__all__ = ["MAX_BYTES", "TIMEOUT_SECONDS", "FetchError", "Resolve", "fetch", "is_public", "read", "trusted"]

MAX_BYTES = 256 * 1024
TIMEOUT_SECONDS = 10.0
#: Addresses of one name that are tried.
_TRIED = 4

#: An IPv4 address inside an IPv6 one (RFC 6052): judged by what it leads to.
_NAT64 = IPv6Network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[list[str]]]


class FetchError(GatewayError):
    """A document could not be fetched."""


async def fetch(url: str, *, allow_private: bool, resolve: Resolve | None = None) -> bytes:
    """Return the document at `url`. Raises FetchError, and nothing else."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await _fetch(httpx.URL(url), allow_private=allow_private, resolve=resolve or _resolve)
    except TimeoutError as error:
        raise FetchError(f"it does not answer within {TIMEOUT_SECONDS:g} s") from error
    except (OSError, ssl.SSLError) as error:
        raise FetchError(f"its name cannot be resolved ({error.strerror or type(error).__name__})") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise FetchError(f"it cannot be reached ({type(error).__name__})") from error


async def _fetch(url: httpx.URL, *, allow_private: bool, resolve: Resolve) -> bytes:
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = await resolve(url.host, port)
    if not addresses:
        raise FetchError("its name has no address")
    if not allow_private and not all(map(is_public, addresses)):
        raise FetchError("it is at a private address, and allow_private is not set")
    async with httpx.AsyncClient(verify=trusted(), trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        *others, last = addresses[:_TRIED]
        for address in others:
            try:
                return await _get(client, url, address)
            except httpx.ConnectError:
                continue
        return await _get(client, url, last)


async def _get(client: httpx.AsyncClient, url: httpx.URL, address: str) -> bytes:
    """Ask `address` for `url`, as what its name says it is."""
    headers = {"host": url.netloc.decode("ascii"), "accept": "application/json", "accept-encoding": "identity"}
    request = client.build_request("GET", url.copy_with(host=address), headers=headers)
    if address != url.host:
        request.extensions["sni_hostname"] = url.host
    response = await client.send(request, stream=True)
    try:
        return await read(response)
    finally:
        await response.aclose()


async def read(response: httpx.Response) -> bytes:
    """Return the body of a 200 within bounds. Raises FetchError, and what httpx raises."""
    if response.status_code != 200:
        raise FetchError(f"it answers with status {response.status_code}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise FetchError("it answers in a content coding that nobody asked for")
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_BYTES:
            raise FetchError(f"it is larger than {MAX_BYTES} octets")
    return body


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_public(address: str) -> bool:
    """Return whether an address is one that anybody could reach."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    inner = _inside(ip) if isinstance(ip, IPv6Address) else None
    return (inner or ip).is_global and not (inner or ip).is_multicast


def _inside(ip: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, if it is of that kind."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


@cache
def trusted() -> ssl.SSLContext:
    """Return the system's authorities, read once: that takes tens of milliseconds."""
    return ssl.create_default_context()
