"""What is allowed and probably not meant, and what is accepted and not there yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config.pending import PENDING
from gateway.config.settings import Settings
from gateway.config.table import fields_of, follow
from tests.gateway.config.documents import NOW, VALID_PAT, loaded

__all__: list[str] = []

QUIET = '[auth]\nunknown = "anonymous"\n'
NOT_YET = "is accepted, and has no effect yet"


def warnings(folder: Path, text: str) -> list[str]:
    """Return what is told of a document that is good."""
    return [str(warning) for warning in loaded(folder, text).warnings]


NOBODY = (
    "auth.unknown: no PAT, issuer or introspection is configured, so every caller with a credential gets 401; "
    '"anonymous" would forward it'
)


@pytest.mark.parametrize(
    ("text", "told"),
    (
        ("", [NOBODY]),
        (
            '[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\n',
            [
                NOBODY,
                'tenants[0].credentials[0]: nobody can present it: it has no pat, and no issuer may speak for "a"',
            ],
        ),
        (f'[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\npat = "{VALID_PAT}"\n', []),
        (f'[[auth.jwt]]\nissuer = "i"\naudience = "a"\nsecret = "{"s" * 32}"\n', []),
        (QUIET, []),
    ),
)
def test_it_is_told_that_every_credential_would_be_rejected(text: str, told: list[str], tmp_path: Path) -> None:
    """A gateway in front of an API that checks tokens itself would otherwise answer 401 to everybody."""
    assert warnings(tmp_path, text) == told


NO_UNIX = "is the peer of a unix socket, and [server] listen is none, so this entry trusts nobody"


def test_it_is_told_what_opens_more_than_it_seems(tmp_path: Path) -> None:
    """Trust in everybody, tenants that anybody can register, a limit that is off."""
    text = f"""
    {QUIET}
    [server]
    trusted_proxies = ["10.0.0.0/8", "unix", "0.0.0.0/0"]
    [[auth.job]]
    issuer = "i"
    audience = "a"
    secret = "{"s" * 32}"
    tenants = ["*"]
    [[policies]]
    name = "p"
    key = ["tenant"]
    quota = "1/s"
    mode = "off"
    """
    assert warnings(tmp_path, text) == [
        "server.trusted_proxies[2]: trusts everybody, so any caller can choose the address it is charged to",
        "server.trusted_proxies[1]: " + NO_UNIX,
        "auth.job[0].tenants: lets whoever registers a namespace at this issuer speak for any tenant of that name",
        'policies[0].mode: policy "p" is off and limits nothing',
    ]


def test_unix_is_trusted_where_it_is_listened_on(tmp_path: Path) -> None:
    """A listener that is a unix socket has peers of that name."""
    assert warnings(tmp_path, QUIET + f'[server]\nlisten = "unix:{tmp_path}/s"\ntrusted_proxies = ["unix"]\n') == []


def test_it_is_told_where_a_reason_to_have_no_limit_is_wrong(tmp_path: Path) -> None:
    """A route cannot both be unlimited on purpose and limited."""
    text = QUIET + (
        '[[routes]]\nname = "r"\npath = "/r"\nunlimited = "probes"\nmethods = ["GET"]\n'
        '[[policies]]\nname = "posts"\nmatch = { method = "POST" }\nkey = ["tenant"]\nquota = "1/s"\n'
        '[[policies]]\nname = "all"\nkey = ["tenant"]\nquota = "1/s"\n'
    )
    told = 'routes[0].unlimited: says that no named policy covers route "r", and "all" does'
    assert warnings(tmp_path, text) == [told]


def test_it_is_told_what_has_ended(tmp_path: Path) -> None:
    """A credential or exemption past its date is kept, and does nothing."""
    text = QUIET + (
        f'[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\npat = "{VALID_PAT}"\n'
        "expires = 2020-01-01T00:00:00Z\n"
        '[[exemptions]]\nname = "x"\nmatch = { tenant = "a" }\nmultiplier = 2\nreason = "r"\nowner = "o"\n'
        "expires = 2020-01-01T00:00:00+02:00\n"
    )
    assert warnings(tmp_path, text) == [
        "tenants[0].credentials[0].expires: is past, so this credential proves nothing",
        "exemptions[0].expires: is past, so this exemption raises nothing",
    ]


def test_it_is_told_a_week_ahead_that_an_exemption_ends(tmp_path: Path) -> None:
    """By whoever starts or checks it, with who answers for it."""
    soon = (datetime.fromtimestamp(NOW / 1e6, UTC) + timedelta(days=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    later = (datetime.fromtimestamp(NOW / 1e6, UTC) + timedelta(days=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = (
        '[[exemptions]]\nname = "{}"\nmatch = {{ tenant = "a" }}\nmultiplier = 2\nreason = "r"\nowner = "o"\n'
        "expires = {}\n"
    )
    text = QUIET + '[[tenants]]\nid = "a"\n' + entry.format("x", soon) + entry.format("y", later)
    assert warnings(tmp_path, text) == ['exemptions[0].expires: is less than a week away: exemption "x" of o ends then']


@pytest.mark.parametrize("pattern", PENDING)
def test_a_pending_key_is_a_key(pattern: tuple[str, ...]) -> None:
    """A row whose key has gone would warn of nothing."""
    table, field = follow(Settings, pattern)
    assert field is not None
    assert pattern[-1] == "*" or fields_of(table).get(pattern[-1]) is field


def test_a_key_without_its_feature_is_told_where_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any file, to anything but its default."""
    monkeypatch.setattr("gateway.config.pending.PENDING", (("store", "url"), ("store", "deadline")))
    (tmp_path / "more.toml").write_text('[store]\nurl = "redis://127.0.0.1"\nposture = "safe-capacity"\n')
    text = f'include = ["more.toml"]\n{QUIET}[store]\ndeadline = "50ms"\nsafe_fraction = 0.5\n'
    assert warnings(tmp_path, text) == [f"more.toml: store.url: {NOT_YET}", f"store.deadline: {NOT_YET}"]


def route(name: str, path: str, *methods: str) -> str:
    """Return an entry of [[routes]]."""
    listed = f"methods = {list(methods)}\n" if methods else ""
    return f'[[routes]]\nname = "{name}"\npath = "{path}"\n{listed}'


@pytest.mark.parametrize(
    ("before", "path", "methods", "met"),
    [
        ([("/**",)], "/a", (), False),
        ([("/a/**",)], "/a", (), False),
        ([("/a/**",)], "/a/*/c/**", (), False),
        ([("/a/*",)], "/a/b", (), False),
        ([("/a",)], "/a", (), False),
        ([("/a", "GET"), ("/*", "POST")], "/a", ("POST", "GET"), False),
        ([("/a", "GET")], "/a", (), True),
        ([("/a", "GET")], "/a", ("GET", "HEAD"), True),
        ([("/a/*",)], "/a/b/c", (), True),
        ([("/a/*",)], "/a/", (), True),
        ([("/a/*",)], "/a/**", (), True),
        ([("/a/b/**",)], "/a/**", (), True),
        ([("/b/**",)], "/a", (), True),
    ],
)
def test_it_is_told_that_a_route_is_never_met(
    before: list[tuple[str, ...]], path: str, methods: tuple[str, ...], met: bool, tmp_path: Path
) -> None:
    """The first match wins, so a route of which nothing is left is one that was put in the wrong place."""
    text = QUIET + "".join(route(f"r{n}", first, *more) for n, (first, *more) in enumerate(before))
    told = [] if met else [f"routes[{len(before)}].path: never matches, since every such request meets "]
    names = ", ".join(f'"r{n}"' for n in range(len(before)))
    assert warnings(tmp_path, text + route("last", path, *methods)) == [f"{one}{names} before it" for one in told]


@pytest.mark.parametrize(
    ("path", "foreign"),
    [
        ("/a/[0-9]+", True), ("/a/{id}", True), ("/a/:id", True), ("/a/<id>", True), ("/(a|b)/c", True), ("/a$", True),
        ("/a/^b", True), ("/a:b", False), ("/a+b", False), ("/a$b", False), ("/a.b/*", False),
    ],
)  # fmt: skip
def test_it_is_told_where_a_path_is_of_another_router(path: str, foreign: bool, tmp_path: Path) -> None:
    """An expression, or a parameter, would be matched as it is written, which is never."""
    told = 'is matched as it is written: "*" is any one segment, "**" the rest, and there is nothing else'
    assert warnings(tmp_path, QUIET + route("r", path)) == ([f"routes[0].path: {told}"] if foreign else [])


ISSUER = f'[[auth.jwt]]\nissuer = "i"\naudience = "a"\nsecret = "{"s" * 32}"\ntenants = ["ac*"]\n'
BETTA = 'tenant: covers nobody: tenant "betta" is not listed, and no issuer may speak for it; did you mean "beta"?'
CII = 'credential: covers nobody: credential "cii" is not listed, and no issuer may name one; did you mean "ci"?'
TENANT = f'[[tenants]]\nid = "beta"\n[[tenants.credentials]]\nid = "ci"\npat = "{VALID_PAT}"\n'


@pytest.mark.parametrize(
    ("match", "told"),
    [
        ('tenant = "beta"', ""),
        ('tenant = "acme"', ""),
        ('tenant = "betta"', BETTA),
        ('tenant = "other"', ""),
        ('tenant = "anonymous"', ""),
        ('tenant = "zeta", identity = "job"', ""),
        ('tenant = "acme", credential = "x"', ""),
        ('credential = "x"', ""),
        ('tenant = "beta", credential = "ci"', ""),
        ('tenant = "beta", credential = "cii"', CII),
    ],
)
def test_it_is_told_that_a_match_covers_nobody(match: str, told: str, tmp_path: Path) -> None:
    """A limit or an exemption for a tenant whom nobody can prove to be limits and raises nothing."""
    policy = f'[[policies]]\nname = "p"\nkey = ["tenant"]\nquota = "1/s"\nmatch = {{ {match} }}\n'
    assert warnings(tmp_path, QUIET + ISSUER + TENANT + policy) == ([f"policies[0].match.{told}"] if told else [])


def test_it_is_told_that_a_credential_is_named_that_nobody_has(tmp_path: Path) -> None:
    """Without an issuer, credentials are those that are listed."""
    exemption = (
        '[[exemptions]]\nname = "x"\nmatch = { credential = "cx" }\nmultiplier = 2\nreason = "r"\nowner = "o"\n'
        "expires = 2035-01-01T00:00:00Z\n"
    )
    told = 'covers nobody: credential "cx" is not listed, and no issuer may name one'
    assert warnings(tmp_path, QUIET + TENANT + exemption) == [f"exemptions[0].match.credential: {told}"]


def test_it_is_told_that_an_issuer_of_jobs_names_a_stranger(tmp_path: Path) -> None:
    """Where tenants are listed, a name that is none of them is most likely a slip."""
    job = f'[[auth.job]]\nissuer = "j"\naudience = "a"\nsecret = "{"s" * 32}"\ntenants = ["betta", "acme", "beta"]\n'
    told = 'auth.job[0].tenants[0]: names tenant "betta", which is not listed; did you mean "beta"?'
    assert warnings(tmp_path, QUIET + ISSUER + TENANT + job) == [told]
    assert warnings(tmp_path, QUIET + job) == []


def test_it_is_told_that_an_issuer_stands_twice(tmp_path: Path) -> None:
    """Entries of one issuer and audience are tried in order, jobs last."""
    job = ISSUER.replace("auth.jwt", "auth.job")
    assert warnings(tmp_path, QUIET + ISSUER + ISSUER.replace('"a"', '"b"') + job) == [
        "auth.job[0].issuer: has issuer and audience of auth.jwt[0], and only sees the tokens that that one refuses"
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[classes.batch]\nceiling = 0\n", "classes.batch.ceiling: is 0, so every request of class batch is refused"),
        (
            '[server]\nadmin = "0.0.0.0:8081"\nadmin_token = "short"\n',
            "server.admin_token: is shorter than 16 characters, and others than this machine may try",
        ),
        (f'[server]\nadmin = "0.0.0.0:8081"\nadmin_token = "{"x" * 16}"\n', ""),
        (
            '[server]\nadmin_token = "short"\n',
            "server.admin_token: is shorter than 16 characters, and whoever is on this machine may try",
        ),
        ('[server]\nadmin_token = ""\n', ""),
    ],
)
def test_it_is_told_what_shuts_or_opens_a_door(text: str, told: str, tmp_path: Path) -> None:
    """A class that may use nothing, a token that can be guessed."""
    assert warnings(tmp_path, QUIET + text) == ([told] if told else [])


@pytest.mark.parametrize(
    ("listen", "url", "key"),
    [
        ("127.0.0.1:8080", 'url = "http://localhost:8080"', "url"),
        ("0.0.0.0:8080", 'url = "http://127.0.0.1:8080/base"', "url"),
        ("gate:8080", 'urls = ["http://a:8080", "http://gate:8080"]', "urls[1]"),
        ("unix:/run/gate", 'url = "unix:/run/gate"', "url"),
        ("127.0.0.1:8080", 'url = "http://127.0.0.1:9000"', ""),
        ("127.0.0.1:8080", 'url = "http://10.0.0.1:8080"', ""),
        ("127.0.0.1:0", 'url = "http://127.0.0.1:80"', ""),
    ],
)
def test_it_is_told_that_an_upstream_is_the_gateway(listen: str, url: str, key: str, tmp_path: Path) -> None:
    """Every request would come back to it."""
    text = f'{QUIET}[server]\nlisten = "{listen}"\n[upstream]\n{url}\n'
    told = "is [server] listen, the gateway's own address, which is no service behind it"
    assert warnings(tmp_path, text) == ([f"upstream.{key}: {told}"] if key else [])
    if key and not listen.startswith("unix"):
        other = f'{QUIET}[server]\nadmin = "127.0.0.1:8090"\n[upstreams.b]\nurl = "http://[::1]:8090"\n'
        (admin,) = warnings(tmp_path, other)
        assert admin == "upstreams.b.url: is [server] admin, the gateway's own address, which is no service behind it"
