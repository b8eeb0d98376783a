"""What one value may be, and that nothing else is."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from datetime import date, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import values
from gateway.config.values import Expanded, QuotaText, parse_duration, parse_quota, shown
from policies.policy import Quota
from policies.units import Rate

__all__: list[str] = []

#: What TOML can hold and no number, quota, duration or size is (case 37).
NONSENSE: tuple[object, ...] = (
    "", " ", "10 ", " 10", "-1", "nan", "inf", "1e999", "ten", "10/s ", "10 /s", "10/S", "1,000/s", "+1/s", "1/s burst",
    "1/s burst -1", "1/s burst 0", "1/sec", "/s", "1/", ".5/s", "5./s", "1_000/s", "\u0663/s", True, False, 0, 1, -1,
    1.5, math.nan, math.inf, [], {}, ["1/s"], date(2035, 1, 1), None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "per_second", "burst"),
    (
        ("5/s", Fraction(5), 5.0),
        ("20/s", Fraction(20), 20.0),
        ("10/min", Fraction(1, 6), 10.0),
        ("60/min burst 60", Fraction(1), 60.0),
        ("1000/h", Fraction(1000, 3600), 10.0),
        ("1/d", Fraction(1, 86_400), 1.0),
        ("0.5/s", Fraction(1, 2), 1.0),
        ("1000000/s", Fraction(1_000_000), 1_000_000.0),
        ("60000000/min", Fraction(1_000_000), 1_000_000.0),
        ("5/s   burst   2.5", Fraction(5), 2.5),
        ("0/s", Fraction(0), 1.0),
        ("0/d burst 7", Fraction(0), 7.0),
    ),
)
def test_a_quota_is_an_exact_rate_and_a_burst(text: str, per_second: Fraction, burst: float) -> None:
    """The burst defaults to the highest of one second's worth, the number up to 10, and 1."""
    quota = parse_quota(text)
    assert quota.resolve() == Quota(Rate(per_second), burst)
    assert str(quota) == text


def test_a_default_burst_grows_with_the_dearest_route() -> None:
    """A default never falls short of a cost; a burst that was written is kept."""
    assert parse_quota("5/s").resolve(50.0).burst == 50.0
    assert parse_quota("5/s burst 20").resolve(50.0).burst == 20.0


@pytest.mark.parametrize("text", ("0.9/d", "1000001/s", "0.01/h", "1/s burst 1000000001", "9999999999/min"))
def test_a_rate_is_from_1_a_day_to_a_million_a_second(text: str) -> None:
    """What lies outside is a mistake, and could not be held."""
    with pytest.raises(ValueError, match="found"):
        parse_quota(text)


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize(
    "parse", (parse_quota, parse_duration, values.parse_tenant_quota, values.size(0), values.parse_wait)
)
def test_nothing_is_guessed(parse: Callable[[object], object], value: object) -> None:
    """Booleans, blanks, signs, exponents and bare numbers are no quota, no duration and no size (case 37)."""
    with pytest.raises(ValueError, match=r"^expected .*, found "):
        parse(value)


@pytest.mark.parametrize(
    "value", ("1", "10 ", "", True, False, math.nan, math.inf, -math.inf, -0.1, 1.1, 10**400, None)
)
def test_a_number_is_a_number(value: object) -> None:
    """A boolean is none, nor is a string, NaN, or one out of its range."""
    with pytest.raises(ValueError, match=r"^expected a number from 0 to 1, found "):
        values.number(0, 1)(value)


def test_a_number_may_have_to_be_above_its_lower_end() -> None:
    """A part of nothing would be a limit nobody meant."""
    assert values.number(0, 1, above=True)(1) == 1.0
    with pytest.raises(ValueError, match=r"^expected a number above 0 and up to 1, found 0$"):
        values.number(0, 1, above=True)(0)


@pytest.mark.parametrize("value", (True, 1.0, "1", 0, 65_536, None))
def test_a_whole_number_is_whole(value: object) -> None:
    """1.0 is none, and true is not 1."""
    with pytest.raises(ValueError, match=r"^expected a whole number from 1 to 65535, found "):
        values.whole(1, 65_535)(value)


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**9 - 1),
    st.sampled_from(("s", "min", "h", "d")),
    st.one_of(st.none(), st.decimals("0.001", "1e9", allow_nan=False, places=3)),
)
def test_a_valid_quota_round_trips(whole: int, part: int, unit: str, burst: object) -> None:
    """The rate is exactly what was written; the burst too."""
    text = f"{whole}.{part:09d}/{unit}" + ("" if burst is None else f" burst {burst}")
    seconds = {"s": 1, "min": 60, "h": 3600, "d": 86_400}[unit]
    expected = (whole + Fraction(part, 10**9)) / seconds
    if expected > 10**6:
        with pytest.raises(ValueError, match="expected a rate"):
            parse_quota(text)
        return
    quota = parse_quota(text)
    assert quota.rate.per_second == expected
    assert quota.burst == (None if burst is None else Fraction(str(burst)))
    assert parse_quota(str(quota)) == quota


@pytest.mark.parametrize(
    ("text", "microseconds"),
    (("250ms", 250_000), ("10s", 10_000_000), ("5m", 300_000_000), ("2h", 7_200_000_000), ("30d", 2_592_000_000_000),
     ("0s", 0), ("1.5s", 1_500_000), ("0.001ms", 1)),
)  # fmt: skip
def test_a_duration_is_whole_microseconds(text: str, microseconds: int) -> None:
    """Five units, and decimals down to the microsecond."""
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize("text", ("0.0001ms", "36526d", "1us", "10 s", "1h30m"))
def test_a_duration_has_one_unit_and_an_end(text: str) -> None:
    """No parts of a microsecond, no centuries, no sums."""
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


def test_a_wait_ends() -> None:
    """A wait of 0 would never allow an answer."""
    with pytest.raises(ValueError, match=r'^expected a duration above 0s, found "0s"$'):
        values.parse_wait("0s")


@pytest.mark.parametrize(
    ("text", "octets"), (("0B", 0), ("512B", 512), ("64KiB", 65_536), ("1MiB", 1 << 20), ("2GiB", 2 << 30))
)
def test_a_size_is_octets(text: str, octets: int) -> None:
    """Powers of two by their names; KB is none."""
    assert values.size(0)(text) == octets
    with pytest.raises(ValueError, match="expected a size"):
        values.size(0)(text.replace("i", "") + "x")


def test_an_id_is_128_octets_without_controls() -> None:
    """Octets of UTF-8 count, not letters; what is no UTF-8 is no id."""
    assert values.parse_id("é" * 64) == "é" * 64
    for wrong in ("", "é" * 65, "a\nb", "a\x7f", "a\x85b", "\udc80", 7, None):
        with pytest.raises(ValueError, match="expected an id"):
            values.parse_id(wrong)


@pytest.mark.parametrize("name", sorted(values.RESERVED))
def test_reserved_words_name_nothing_of_an_operator(name: str) -> None:
    """They mean something else in figures and refusals."""
    assert values.parse_id(name) == name
    with pytest.raises(ValueError, match="reserved"):
        values.parse_own_id(name)


@pytest.mark.parametrize(
    ("text", "network"),
    (
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::1", "::1/128"),
    ),
)
def test_a_network_is_a_cidr_or_an_address(text: str, network: str) -> None:
    """One address is a network of one."""
    assert values.parse_network(text) == ipaddress.ip_network(network)
    assert values.parse_network("unix") == "unix"


def test_a_network_with_host_bits_is_told_what_it_may_mean() -> None:
    """10.0.0.1/8 is a mistake of one kind or another."""
    with pytest.raises(ValueError, match=r'found "10.0.0.1/8"; its network is 10.0.0.0/8$'):
        values.parse_network("10.0.0.1/8")
    with pytest.raises(ValueError, match=r'found "10.0.0"$'):
        values.parse_network("10.0.0")
    with pytest.raises(ValueError, match=r"found 10$"):
        values.parse_network(10)


def test_an_instant_has_an_offset() -> None:
    """A local time means another instant on every machine."""
    assert values.parse_instant(datetime.fromisoformat("1970-01-01T01:00:00.5+01:00")) == 500_000
    for wrong in (datetime(2035, 1, 1), date(2035, 1, 1), "2035-01-01T00:00:00Z", 5):  # noqa: DTZ001 - the point
        with pytest.raises(ValueError, match="with its offset"):
            values.parse_instant(wrong)


@pytest.mark.parametrize("value", ("open", "closed", "safe-capacity", "deny:0", "deny:20", "deny:100"))
def test_a_posture_is_one_of_four(value: str) -> None:
    """The last takes a percentage."""
    assert values.parse_posture(value) == value


@pytest.mark.parametrize("value", ("deny", "deny:101", "deny:-1", "deny:1.5", "Open", "", True))
def test_nothing_else_is_a_posture(value: object) -> None:
    """Least of all a percentage above a hundred."""
    with pytest.raises(ValueError, match="per cent"):
        values.parse_posture(value)


@pytest.mark.parametrize(
    ("value", "text"),
    (
        ("a", '"a"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("\x1b[2J\u202e", '"\\u001b[2J\\u202e"'),
        ("x" * 200, '"' + "x" * 157 + '..."'),
        (True, "true"),
        (3, "3"),
        (10**30, "a huge number"),
        (math.nan, "nan"),
        ([1], "an array"),
        ({}, "a table"),
        (date(2035, 1, 1), "2035-01-01"),
        (None, "nothing"),
        (Expanded.of("hunter2", "${PASSWORD}"), 'what "${PASSWORD}" expands to'),
    ),
)
def test_a_message_quotes_what_the_file_says(value: object, text: str) -> None:
    """Shortened, harmless to a terminal, and never what a variable held."""
    assert shown(value) == text


def test_a_quota_keeps_its_words() -> None:
    """So that figures show what the operator wrote."""
    quota = parse_quota("10/min burst 20")
    assert quota == QuotaText("10/min burst 20", Fraction(10), Rate(Fraction(1, 6)), Fraction(20))
