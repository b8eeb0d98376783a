"""Who may use the admin listener: the rules of the contract, section 7, as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.admin.access import COOKIE, SESSION, Keys
from tests.gateway.admin.served import TOKEN, Served
from tests.gateway.telemetry.made import StoppedClock

BEARER = {"authorization": f"Bearer {TOKEN}"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("host", "status"),
    (
        ("localhost", 200),
        ("localhost:8081", 200),
        ("LOCALHOST.", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:9999", 200),
        ("127.8.9.10", 200),
        ("[::1]:8081", 200),
        ("[::1]", 200),
        ("admin.example.com", 421),
        ("evil.example.com:8081", 421),
        ("localhost.evil.example.com", 421),
        ("evil-localhost", 421),
        ("192.0.2.7", 421),
        ("localhost@evil.example.com", 421),
        ("[::1]evil", 421),
        ("[::2]", 421),
        ("", 421),
    ),
)
async def test_without_a_token_the_host_names_loopback_or_our_address(tmp_path: Path, host: str, status: int) -> None:
    """A page cannot reach us through a name of its own; the port says nothing. Probes may call us what they like."""
    served = Served(tmp_path)
    assert (await served.ask("/api/fairness", headers={"host": host})).status_code == status
    assert (await served.ask("/metrics", headers={"host": host})).status_code == status
    assert (await served.ask("/livez", headers={"host": host})).status_code == 200
    assert (await served.ask("/readyz", headers={"host": host})).status_code == 200


async def test_the_configured_address_is_a_name_of_ours(tmp_path: Path) -> None:
    """Any address that is bound on purpose, and no other; several Hosts are all looked at."""
    served = Served(tmp_path, admin="127.0.0.2:8081")
    assert (await served.ask("/", headers={"host": "127.0.0.2"})).status_code == 200
    both = [("host", "localhost"), ("host", "evil.example.com")]
    assert (await served.ask("/", headers=both)).status_code == 421
    served = Served(tmp_path, token=TOKEN, admin="0.0.0.0:8081")
    assert (await served.ask("/", headers={"host": "any.example.com"} | BEARER)).status_code == 200


@pytest.mark.parametrize("path", ("/", "/metrics", "/api/fairness", "/api/limits", "/api/tenants/acme", "/nothing"))
@pytest.mark.parametrize(
    ("headers", "open_"),
    (
        ({}, False),
        ({"authorization": f"Bearer {TOKEN}"}, True),
        ({"authorization": f"bearer   {TOKEN} "}, True),
        ({"authorization": "Bearer wrong"}, False),
        ({"authorization": f"Bearer {TOKEN}x"}, False),
        ({"authorization": f"Basic {TOKEN}"}, False),
        ({"authorization": TOKEN}, False),
        ({"authorization": "Bearer \xe9"}, False),
        ({"cookie": f"{COOKIE}={TOKEN}"}, False),
        ({"cookie": f"{COOKIE}=9999999999999999.{'0' * 64}"}, False),
        ({"cookie": f"{COOKIE}=.; {COOKIE}=x.y; other=1"}, False),
    ),
)
async def test_with_a_token_everything_but_the_probes_needs_it(
    tmp_path: Path, path: str, headers: dict[str, str], open_: bool
) -> None:
    """By bearer token; the token is no cookie, and a cookie nobody signed opens nothing. What exists is not told."""
    octets = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = await Served(tmp_path, token=TOKEN).ask(path, headers=octets)  # type: ignore[arg-type] # httpx takes both
    if open_:
        assert answer.status_code in (200, 404)
        return
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text


async def test_two_authorizations_are_none(tmp_path: Path) -> None:
    """Which of the two counts would be a guess."""
    headers = [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")]
    assert (await Served(tmp_path, token=TOKEN).ask("/metrics", headers=headers)).status_code == 401


async def test_probes_are_open_with_a_token_too(tmp_path: Path) -> None:
    """`/livez` and `/readyz` need none; only to be read."""
    served = Served(tmp_path, token=TOKEN)
    for path in ("/livez", "/readyz"):
        assert (await served.ask(path)).status_code == 200
        assert (await served.ask(path, "HEAD")).status_code == 200
        assert (await served.ask(path, "POST")).status_code == 401


@pytest.mark.parametrize("token", ("", TOKEN))
@pytest.mark.parametrize(
    ("headers", "elsewhere"),
    (
        ({}, False),
        ({"origin": "http://localhost"}, False),
        ({"origin": "https://localhost"}, False),
        ({"origin": "http://LOCALHOST"}, False),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost"}, False),
        ({"origin": "http://localhost:8080"}, True),
        ({"origin": "http://evil.example.com"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"origin": "file://localhost"}, True),
        ({"origin": "http://["}, True),
        ({"origin": "http://localhost@evil.example.com"}, True),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://evil.example.com"}, True),
    ),
)
@pytest.mark.parametrize("method", ("POST", "DELETE", "PUT", "PATCH"))
async def test_what_changes_something_does_not_come_from_another_site(
    tmp_path: Path, token: str, headers: dict[str, str], elsewhere: bool, method: str
) -> None:
    """403 if Origin or Sec-Fetch-Site is not same-origin, with a valid token too; one with neither is not."""
    answer = await Served(tmp_path, token=token).ask("/api/fairness", method, headers | (BEARER if token else {}))
    assert answer.status_code == (403 if elsewhere else 405)


async def test_reading_is_not_held_to_the_origin(tmp_path: Path) -> None:
    """A link from elsewhere may lead here; without CORS no other page can read the answer."""
    answer = await Served(tmp_path).ask("/api/fairness", headers={"origin": "http://evil.example.com"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_a_browser_is_led_to_the_login_and_back(tmp_path: Path) -> None:
    """The page sets a cookie that scripts cannot read and other sites cannot send; it opens what the token opens."""
    served = Served(tmp_path, token=TOKEN)
    led = await served.ask("/", headers={"accept": "text/html,*/*;q=0.8"})
    assert (led.status_code, led.headers["location"]) == (303, "/login")
    page = await served.ask("/login")
    assert page.status_code == 200
    assert 'name="token"' in page.text
    wrong = await served.ask("/login", "POST", FORM, "token=wrong")
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    entered = await served.ask("/login", "POST", FORM, f"token={TOKEN}")
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={SESSION // 1_000_000}"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert TOKEN not in cookie
    pair = cookie.split(";")[0]
    assert (await served.ask("/metrics", headers={"cookie": f"a=b; {pair}"})).status_code == 200
    assert (await served.ask("/api/fairness", "POST", {"cookie": pair})).status_code == 405
    served.clock.at += SESSION
    assert (await served.ask("/metrics", headers={"cookie": pair})).status_code == 401


async def test_leaving_takes_the_cookie_away(tmp_path: Path) -> None:
    """Over TLS the cookie is Secure; logging out needs no token."""
    served = Served(tmp_path, token=TOKEN)
    entered = await served.ask("/login", "POST", FORM, f"token={TOKEN}", scheme="https")
    assert "Secure" in entered.headers["set-cookie"].split("; ")
    left = await served.ask("/login", "POST", FORM, "leave=1")
    assert left.status_code == 303
    assert "Max-Age=0" in left.headers["set-cookie"]
    index = await served.ask("/", headers=BEARER)
    assert "Log out" in index.text


async def test_another_site_cannot_log_anybody_in(tmp_path: Path) -> None:
    """The login is held to the same rule as every other change; a long form is not read to its end."""
    served = Served(tmp_path, token=TOKEN)
    elsewhere = FORM | {"origin": "http://evil.example.com"}
    assert (await served.ask("/login", "POST", elsewhere, f"token={TOKEN}")).status_code == 403
    assert (await served.ask("/login", "POST", FORM, "token=" + "x" * 10_000)).status_code == 413


@pytest.mark.parametrize("method", ("GET", "POST"))
async def test_without_a_token_there_is_no_login(tmp_path: Path, method: str) -> None:
    """Nothing to log in with."""
    assert (await Served(tmp_path).ask("/login", method, FORM, "token=")).status_code == 404


def test_no_token_means_no_key_fits() -> None:
    """An empty token is never the right one, and the keys do not print."""
    keys = Keys("", StoppedClock())
    assert not keys.is_token("")
    assert not keys.is_session(keys.session())
    assert TOKEN not in repr(Keys(TOKEN, StoppedClock()))
