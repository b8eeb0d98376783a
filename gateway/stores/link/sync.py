"""The shared store for threads: history, registries and whatever else may wait, by redis-py.

Rules
1. Never on the data plane's loop: every call of such a client blocks, for `SECONDS` at most.
2. Nothing is repeated by the library, whose default is to send again what may have run. Whoever calls tries again.
3. The clients of one process share one pool, so that together with the link's own connection it holds no more than
   `max_connections`; of a cluster, one to each primary beside the link's.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from ssl import TLSVersion
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import BlockingConnectionPool, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisClusterException
from redis.retry import Retry
from redis.sentinel import Sentinel

from gateway.config.sections import StoreSection
from gateway.config.store_url import StoreAddress, read_store_url

__all__ = ["SECONDS", "open_client"]

#: For a connection, for an answer, and for a connection that another thread has.
SECONDS = 1.0

#: What redis-py gives no types.
_POOL: Any = BlockingConnectionPool
_SENTINEL: Any = Sentinel
_NODE: Any = ClusterNode


def open_client(section: StoreSection) -> redis.Redis:
    """Return a client of the store of that section, whose `url` is a Redis; replies are bytes.

    Its calls raise `redis.RedisError`. A client of one server, or of Sentinels, connects when it is first used. That of
    a cluster asks for the map of slots here, so this may raise the same; it has the same methods, for names of one hash
    tag at a time. Closed, it is of use again: the next call connects.
    """
    try:
        with _MAKING:
            return _client(section.url, str(section.ca_file or ""), section.max_connections)
    except (OSError, RedisClusterException) as error:  # neither of which redis-py counts among its own
        raise redis.ConnectionError("no connection to the store could be made") from error


#: Two threads that ask at once get the same client.
_MAKING = threading.Lock()


@lru_cache(maxsize=8)
def _client(url: str, ca_file: str, most: int) -> redis.Redis:
    address = read_store_url(url)
    options = _options(address, ca_file) | {"max_connections": max(most - 1, 1)}
    if address.kind == "cluster":
        return cast("redis.Redis", _cluster(address, options))  # the commands of both are the same mixin's
    if address.kind == "sentinel":
        return _sentinel(address, options)
    return _single(address, options)


def _options(address: StoreAddress, ca_file: str) -> dict[str, Any]:
    """Return what every connection is made with."""
    tls = {"ssl": True, "ssl_ca_certs": ca_file or None, "ssl_min_version": TLSVersion.TLSv1_2} if address.tls else {}
    return {
        "username": address.user or None,
        "password": address.password or None,
        "socket_timeout": SECONDS,
        "socket_connect_timeout": SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "evenhand",
        "driver_info": None,  # one right less that our user needs
        **tls,
    }


def _single(address: StoreAddress, options: dict[str, Any]) -> redis.Redis:
    kind: type[Connection | UnixDomainSocketConnection] = Connection
    if address.unix:
        kind = UnixDomainSocketConnection
        options |= {"path": address.unix}
    else:
        options |= dict(zip(("host", "port"), address.hosts[0], strict=True))
        kind = SSLConnection if options.pop("ssl", False) else Connection
    pool = _POOL(connection_class=kind, timeout=SECONDS, db=address.database, **options)
    return redis.Redis(connection_pool=pool)


def _sentinel(address: StoreAddress, options: dict[str, Any]) -> redis.Redis:
    own = {"username": address.sentinel_user or None, "password": address.sentinel_password or None}
    sentinels = _SENTINEL(address.hosts, sentinel_kwargs=options | own, **options)
    return cast("redis.Redis", sentinels.master_for(address.service, db=address.database))


def _cluster(address: StoreAddress, options: dict[str, Any]) -> redis.RedisCluster:
    nodes = [_NODE(host, port) for host, port in address.hosts]
    options |= {"max_connections": 1, "connection_pool_class": _WaitingPool}
    return _Cluster(startup_nodes=nodes, require_full_coverage=False, **options)


class _WaitingPool(BlockingConnectionPool):
    """A pool in which a thread waits for the connection that another one has."""

    def __init__(self, **options: Any) -> None:
        super().__init__(timeout=SECONDS, **options)  # type: ignore[no-untyped-call]  # in the library


class _Cluster(redis.RedisCluster):
    """A cluster's client which, if it cannot be made, leaves no connection open."""

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except BaseException:
            # Its own `close` needs what it has not made yet.
            known = getattr(self, "nodes_manager", None)
            for node in known.nodes_cache.values() if known else ():
                if node.redis_connection is not None:
                    node.redis_connection.connection_pool.disconnect()
            raise
