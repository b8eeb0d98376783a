"""The lines of the decision log.

JSON, one object a line. `event` says which of five it is:

- `request`: one request. `ts` (RFC 3339, UTC, when it ended), `id`, `tenant`, `credential`, `identity`, `class`,
  `address`, `method`, `path` (canonical, without query, its first 256 characters; of a rejected one written like that,
  as far as it can be told), `route`, `cost` (request units),
  `outcome`, `status` (0: nothing was answered), `limit` (the limit that refused, or why it was rejected; else null),
  `refused` (all limits that refused), `wait_ms` (until `limit` could admit; -1 never; null if nothing refused), `mode`
  (shadow: the refusal was not enforced), `shadow` (limits in shadow that would have refused), `exemption`,
  `ended` (what of ours ended it early: drain, expired, idle, lifetime; else null), `posture` (what decided where the
  store, or whoever judges a credential, did not answer; else null), `duration_ms`, `upstream_ms`, `sample` (the part of
  its kind that is logged; 1.0 is all), `trace_id` and `parent_id` (of a valid `traceparent`, else null).
- `counted`: what came in one second beyond the requests logged in full. `ts` (the second), `tenant`, `outcome`,
  `limit`, `mode`, `count` (all of that second), `omitted` (those without a line of their own).
- `fairness`: once a minute with traffic. `ts`, `window`, `aggregate` beside `worst`, as in `/api/fairness`.
- `act`: what an operator did: `act` (made, ended), `by` (address), and the members of the act as the API has them.
- `dropped`: `count` lines were lost, because whoever reads the log did not keep up.

`common` and `combined` are the formats of Apache httpd, for tools that read nothing else: only requests, and `-` for
what is not kept of one: the size, Referer and User-Agent, and the whole request line where it could not be read. The
path is the canonical one and the version always HTTP/1.1.

Rules
1. No secret reaches a line: no header but `traceparent`, no query, no token. What a caller made is escaped and of
   bounded length.
2. Fields are only ever added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import orjson

from gateway.ports import Decision
from policies.charge import NEVER
from policies.policy import Mode
from policies.units import SECOND, Micros
from policies.verdict import Outcome

__all__ = ["FORMATS", "Format", "Logged", "clip", "event_line", "trace_ids", "what_of"]


# Looked up once: a member of an enum costs as much as a call.
_REFUSED: Final = Outcome.REFUSED
_REJECTED: Final = Outcome.REJECTED
_MAX_PATH = 256
#: W3C Trace Context, section 3.2.2: an id of nothing but 0 is invalid, a later version may say more.
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})-(?P<parent_id>(?!0{16})[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<more>-.*)?"
)
_MAX_NAME = 128
_MAX_METHOD = 32


@dataclass(slots=True)
class Logged:
    """One request to be logged: when it ended, and the part of its kind that is."""

    decision: Decision
    now: Micros
    mode: Mode
    sample: float
    route: str | None


#: Makes a line with its newline.
Format = Callable[[Logged], bytes]


def clip(text: str, length: int) -> str:
    """Return at most `length` characters of what a caller made, fit for UTF-8."""
    text = text[:length]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def what_of(decision: Decision) -> str | None:
    """Return the limit that refused or the code of the rejection; in shadow, those that would have."""
    if decision.outcome is _REFUSED:
        return decision.limit
    if decision.outcome is _REJECTED:
        return None if decision.rejection is None else decision.rejection.code
    verdict = decision.verdict
    if verdict is None:
        return None
    if verdict.refusal is not None:
        return verdict.refusal.limit
    shadow = verdict.reading.shadow_refused
    return shadow[0].limit if shadow else decision.notes.get("rejected")


def event_line(event: str, ts: Micros, members: Mapping[str, object]) -> bytes:
    """Return a line that is not one request's."""
    return orjson.dumps({"ts": _rfc3339(ts), "event": event, **members}, option=orjson.OPT_APPEND_NEWLINE)


def _json(logged: Logged) -> bytes:
    decision, now = logged.decision, logged.now
    facts, principal, verdict = decision.facts, decision.principal, decision.verdict
    refusal = None if verdict is None else verdict.refusal
    members = {
        "ts": _rfc3339(now),
        "event": "request",
        "id": clip(decision.request_id, _MAX_NAME),
        "tenant": clip(principal.tenant, _MAX_NAME),
        "credential": clip(principal.credential, _MAX_NAME),
        "identity": principal.kind.value,
        "class": decision.cls.label,
        "address": clip(facts.address, _MAX_NAME),
        "method": clip(facts.method, _MAX_METHOD),
        "path": clip(facts.path, _MAX_PATH),
        "route": logged.route,
        "cost": None if verdict is None else verdict.plan.cost,
        "outcome": "" if decision.outcome is None else decision.outcome.value,
        "status": decision.status,
        "limit": what_of(decision),
        "refused": [] if verdict is None else [refused.limit for refused in verdict.reading.refused],
        "wait_ms": None if refusal is None else (-1 if refusal.wait_us == NEVER else -(-refusal.wait_us // 1000)),
        "mode": logged.mode.value,
        "shadow": [] if verdict is None else [refused.limit for refused in verdict.reading.shadow_refused],
        "exemption": decision.exemption or None,
        "ended": decision.notes.get("ended"),
        "posture": decision.notes.get("posture"),
        "duration_ms": (now - decision.started_us) / 1000,
        "upstream_ms": decision.upstream_us / 1000 if decision.sent else None,
        "sample": logged.sample,
        **dict(zip(("trace_id", "parent_id"), trace_ids(facts.trace), strict=True)),
    }
    return orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE)


def trace_ids(traceparent: str | None) -> tuple[str | None, str | None]:
    """Return trace and parent id of a traceparent; None of one that is not valid, which is not ours to mend."""
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    # Version ff does not exist, and 00 is never longer (W3C Trace Context, sections 3.2.2.1 and 3.2.3).
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None, None
    return found["trace_id"], found["parent_id"]


def _common(logged: Logged) -> bytes:
    return f"{_entry(logged)}\n".encode()


def _combined(logged: Logged) -> bytes:
    return f'{_entry(logged)} "-" "-"\n'.encode()


def _entry(logged: Logged) -> str:
    facts, principal = logged.decision.facts, logged.decision.principal
    user = _bare(f"{principal.tenant}/{principal.credential}", 2 * _MAX_NAME)
    when = datetime.fromtimestamp(logged.now / SECOND, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
    request = f"{_bare(facts.method, _MAX_METHOD)} {_bare(facts.path, _MAX_PATH)} HTTP/1.1"
    request = request if facts.method and facts.path else "-"
    return f'{_bare(facts.address, _MAX_NAME) or "-"} - {user} [{when}] "{request}" {logged.decision.status:03d} -'


def _bare(text: str, length: int) -> str:
    """Escape as httpd does what would end a field or a line."""
    text = text[:length]
    if text.isascii() and text.isprintable() and not set(text) & set('"\\ '):
        return text
    octets = text.encode("utf-8", "surrogatepass")
    return "".join(chr(octet) if 0x20 < octet < 0x7F and octet not in b'"\\' else f"\\x{octet:02x}" for octet in octets)


def _rfc3339(instant: Micros) -> str:
    return f"{_second(instant // SECOND)}.{instant % SECOND:06d}Z"


@lru_cache(maxsize=8)
def _second(number: int) -> str:
    # Most of the price of a line, and lines of the same second come together.
    return datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%S")


FORMATS: Mapping[str, Format] = {"json": _json, "common": _common, "combined": _combined}
