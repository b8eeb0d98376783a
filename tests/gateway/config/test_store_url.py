"""`[store] url`: where a shared store is, and the one sentence that says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import load
from gateway.config.store_url import StoreAddress, parse_store_url, read_store_url
from gateway.errors import ConfigError
from tests.gateway.proxy.certificates import Authority

__all__: list[str] = []

GOOD = (
    ("redis://localhost", StoreAddress("single", False, (("localhost", 6379),))),
    ("rediss://r.example.com:6380/3", StoreAddress("single", True, (("r.example.com", 6380),), database=3)),
    ("redis://:pw@[::1]:6381/0", StoreAddress("single", False, (("::1", 6381),), password="pw")),
    # From an environment variable as it is, and percent-encoded.
    ("redis://ann:a/b@c#d?e@h", StoreAddress("single", False, (("h", 6379),), user="ann", password="a/b@c#d?e")),
    ("redis://ann:a%40b%25@h", StoreAddress("single", False, (("h", 6379),), user="ann", password="a@b%")),
    ("redis+unix:///run/redis.sock", StoreAddress("single", False, unix="/run/redis.sock")),
    (
        "redis+unix://:pw@/run/redis.sock?database=2",
        StoreAddress("single", False, unix="/run/redis.sock", password="pw", database=2),
    ),
    (
        "redis+sentinel://u:p@s1,s2:5000/mymaster/1?sentinel_user=w&sentinel_password=q",
        StoreAddress("sentinel", False, (("s1", 26379), ("s2", 5000)), "", "u", "p", 1, "mymaster", "w", "q"),
    ),
    ("rediss+cluster://[::1]:7000,[::2]", StoreAddress("cluster", True, (("::1", 7000), ("::2", 6379)))),
)


@pytest.mark.parametrize(("url", "address"), GOOD)
def test_a_redis_is_named_by_its_address(url: str, address: StoreAddress) -> None:
    """One server, one behind a socket, what Sentinels say, a cluster; each with TLS and with credentials."""
    assert parse_store_url(url) == url
    assert read_store_url(url) == address


def test_an_address_shows_no_password() -> None:
    """Neither its repr nor the name by which stores are told apart."""
    address = read_store_url("redis+sentinel://u:hunter2@[::1]/m/1?sentinel_password=hunter3")
    assert "hunter" not in repr(address)
    assert address.place == "sentinel:[::1]:26379/m/1"


SCHEMES = (
    "redis://, rediss://, redis+unix://, redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://"
)
BAD = (
    ("", f'expected memory:, or an address that starts with one of {SCHEMES}, found ""'),
    ("redis:", "expected memory:, or an address"),
    ("http://ann:hunter2@h", "expected memory:, or an address"),
    (True, "expected memory:, or an address"),
    ("redis://", 'expected the host of a Redis such as "redis://127.0.0.1:6379", found none that is valid'),
    ("redis:///0", "expected the host of a Redis"),
    ("redis://:6379", "expected the host of a Redis"),
    ("redis://x:0x1", "expected the host of a Redis"),
    ("redis://:hunter2@x:99999", "expected the host of a Redis"),
    ("redis+cluster://a,,b", "expected the host of a Redis"),
    ("redis://a,b", "expected one host with redis://, found 2; redis+sentinel:// and redis+cluster:// take several"),
    ("redis://hunter2@a", 'expected a password after the user, as in "redis://user:password@host", found none'),
    ("redis://a/hunter2", "expected the number of a database, found something else"),
    ("redis://a?hunter2=1", "expected nothing after the ? of redis://, found something else"),
    ("redis+sentinel://a", "expected the name of the service after the hosts, as in "),
    ("redis+sentinel://a/m?p=1", "expected sentinel_password or sentinel_user after the ? of redis+sentinel://, found"),
    ("redis+cluster://a/1", "expected no database with redis+cluster://, since a cluster has but one, found 1"),
    ("redis+unix://run/x", 'expected the path of a socket such as "redis+unix:///run/redis/redis.sock", found none'),
)  # fmt: skip


@pytest.mark.parametrize(("value", "sentence"), BAD)
def test_what_is_no_store_stops_the_start(value: object, sentence: str) -> None:
    """It never silently means counting in memory (case 37), and no sentence quotes what may be secret."""
    with pytest.raises(ValueError, match=r"^expected .*, found ") as caught:
        parse_store_url(value)
    assert str(caught.value).startswith(sentence)
    assert "hunter2" not in str(caught.value)


def test_memory_is_a_store() -> None:
    """The default."""
    assert parse_store_url("memory:") == "memory:"


@pytest.mark.parametrize(("url", "right"), (("rediss://a", True), ("redis://a", False), ("memory:", False)))
def test_authorities_go_with_tls(url: str, right: bool, tmp_path: Path) -> None:
    """A file of authorities beside a URL without TLS would only make believe."""
    authority = Authority(tmp_path)
    (tmp_path / "gateway.toml").write_text(
        f'[upstream]\nurl = "http://a"\n[backstop]\nquota = "9/s"\n[store]\nurl = "{url}"\n'
        f'ca_file = "{authority.file}"\n'
    )
    if right:
        assert load(tmp_path / "gateway.toml", {}).settings.store.ca_file == authority.file
        return
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "gateway.toml", {})
    assert "store.ca_file: expected a url with TLS beside it, such as rediss://, found one without" in str(caught.value)
