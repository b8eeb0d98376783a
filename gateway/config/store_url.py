"""The address of a store, as `[store] url` writes it.

    memory:
    redis://[[user]:password@]host[:port][/database]
    redis+unix://[[user]:password@]/path/of/the.sock[?database=N]
    redis+sentinel://[[user]:password@]host[:port],host[:port],.../service[/database][?sentinel_password=...]
    redis+cluster://[[user]:password@]host[:port],host[:port],...

rediss://, rediss+sentinel:// and rediss+cluster:// are the same with TLS.

Rules
1. A parser raises ValueError with one sentence, which quotes nothing of what may be secret.
2. User and password are percent-decoded; what needs no encoding may stand there as it is, slashes included, since a
   password comes from the environment as it is. The last `@` ends them.
3. Nothing is resolved or connected to here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote

from gateway.config.addresses import is_host_port, masked

__all__ = ["MEMORY", "StoreAddress", "parse_store_url", "read_store_url"]

MEMORY = "memory:"

#: Each scheme: what kind of store, whether with TLS, the port where none is written, what may stand in the query.
_SCHEMES: dict[str, tuple[str, bool, int, frozenset[str]]] = {
    "redis": ("single", False, 6379, frozenset()),
    "rediss": ("single", True, 6379, frozenset()),
    "redis+unix": ("single", False, 0, frozenset({"database"})),
    "redis+sentinel": ("sentinel", False, 26379, frozenset({"sentinel_user", "sentinel_password"})),
    "rediss+sentinel": ("sentinel", True, 26379, frozenset({"sentinel_user", "sentinel_password"})),
    "redis+cluster": ("cluster", False, 6379, frozenset()),
    "rediss+cluster": ("cluster", True, 6379, frozenset()),
}
#: What sun_path holds on Linux, its end not counted.
_UNIX = 107


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a Redis is. `kind` is single, sentinel or cluster; `hosts` are its own, the Sentinels, or some nodes.

    `place` tells two stores apart and holds no secret.
    """

    kind: str
    tls: bool
    hosts: tuple[tuple[str, int], ...] = ()
    unix: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    service: str = ""
    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """The store without credentials."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.kind}:{self.unix or hosts}/{self.service}/{self.database}"


def parse_store_url(value: object) -> str:
    """Parse where buckets are kept: `memory:`, or the address of a Redis."""
    text = value if isinstance(value, str) else ""
    if text != MEMORY:
        if text.partition("://")[0] not in _SCHEMES or "://" not in text:
            schemes = ", ".join(f"{name}://" for name in _SCHEMES)
            raise ValueError(
                f"expected {MEMORY}, or an address that starts with one of {schemes}, found {masked(value)}"
            )
        read_store_url(text)
    return str(text)


def read_store_url(url: str) -> StoreAddress:
    """Take the address of a Redis apart; ValueError, with one sentence, if it is none."""
    scheme, _, rest = url.partition("://")
    kind, tls, port, options = _SCHEMES[scheme]
    login, _, tail = rest.rpartition("@")
    tail, _, query = tail.partition("?")
    extra = _query(scheme, query, options)
    user, _, password = login.partition(":")
    if user and not password:
        raise ValueError(f'expected a password after the user, as in "{scheme}://user:password@host", found none')
    place = StoreAddress(
        kind,
        tls,
        user=unquote(user),
        password=unquote(password),
        sentinel_user=extra.get("sentinel_user", ""),
        sentinel_password=extra.get("sentinel_password", ""),
    )
    if scheme == "redis+unix":
        return replace(place, unix=_unix(tail), database=_database(extra.get("database", "")))
    hosts, _, path = tail.partition("/")
    service, database = _path(scheme, kind, path)
    return replace(place, hosts=_hosts(scheme, hosts, port), service=service, database=database)


def _query(scheme: str, query: str, options: frozenset[str]) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    if found.keys() - options:
        known = " or ".join(sorted(options)) or "nothing"
        raise ValueError(f"expected {known} after the ? of {scheme}://, found something else")
    return found


def _hosts(scheme: str, text: str, port: int) -> tuple[tuple[str, int], ...]:
    hosts = text.split(",")
    if not all(map(is_host_port, hosts)):
        raise ValueError(
            f'expected the host of a Redis such as "{scheme}://127.0.0.1:{port}", found none that is valid'
        )
    if len(hosts) > 1 and scheme in {"redis", "rediss"}:
        raise ValueError(
            f"expected one host with {scheme}://, found {len(hosts)}; "
            f"{scheme}+sentinel:// and {scheme}+cluster:// take several"
        )
    return tuple(_host(host, port) for host in hosts)


def _host(text: str, default: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    return (host or text).strip("[]"), int(port) if colon else default


def _path(scheme: str, kind: str, path: str) -> tuple[str, int]:
    """Return the service, where there are such, and the database."""
    if kind == "sentinel":
        service, _, path = path.partition("/")
        if not service:
            raise ValueError(
                f'expected the name of the service after the hosts, as in "{scheme}://host:26379/mymaster", found none'
            )
        return unquote(service), _database(path)
    database = _database(path)
    if kind == "cluster" and database:
        raise ValueError(f"expected no database with {scheme}://, since a cluster has but one, found {database}")
    return "", database


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError("expected the number of a database, found something else")
    return int(text)


def _unix(path: str) -> str:
    path = unquote(path)
    if not path.startswith("/") or "\0" in path or len(path.encode()) > _UNIX:
        raise ValueError('expected the path of a socket such as "redis+unix:///run/redis/redis.sock", found none')
    return path
