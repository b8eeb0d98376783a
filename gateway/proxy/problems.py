"""Every problem the gateway answers that is not a refusal by a limit: short name -> status, title, usual detail.

Rules
1. The short name is the last part of the problem type URI, and of its heading in docs/problems.md.
2. A name that is not here is answered as its status alone would be: no rejection can be without words.
3. `closes` says that what the caller sends next cannot be told from the rest of this request.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BASE", "PROBLEMS", "Problem", "problem"]

#: Where problem types of our own live (RFC 9457 section 3.1.1); each has a section in docs/problems.md.
BASE = "https://evenhand.dev/problems/"


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of answer. `detail` is used where whoever rejects says nothing more exact."""

    code: str
    status: int
    title: str
    detail: str
    closes: bool = False

    @property
    def type_uri(self) -> str:
        """The problem type, an absolute URI."""
        return BASE + self.code


_ALL = (
    Problem("bad-request", 400, "Bad request", "The request is not one that HTTP allows.", closes=True),
    Problem("bad-framing", 400, "Bad framing", "The end of the request cannot be told for certain.", closes=True),
    Problem("bad-host", 400, "Bad host", "A request has exactly one Host, and it is a valid one.", closes=True),
    Problem("ambiguous-path", 400, "Ambiguous path", "The path can be read in more than one way."),
    Problem("ambiguous-credentials", 400, "Ambiguous credentials", "The request presents more than one credential."),
    Problem("credential-required", 401, "Credential required", "This service answers only callers with a credential."),
    Problem("invalid-credential", 401, "Invalid credential", "The credential that was presented is not valid here."),
    Problem("forbidden", 403, "Forbidden", "This caller may not do that here."),
    Problem("not-found", 404, "Not found", "There is nothing here."),
    Problem("method-not-allowed", 405, "Method not allowed", "This method is not passed on.", closes=True),
    Problem("request-timeout", 408, "Request timeout", "The request took too long to arrive.", closes=True),
    Problem("content-too-large", 413, "Content too large", "The request body is larger than is passed on."),
    Problem("uri-too-long", 414, "URI too long", "The request target is longer than is read.", closes=True),
    Problem("expectation-failed", 417, "Expectation failed", "The only expectation that is met is 100-continue."),
    Problem("misdirected-request", 421, "Misdirected request", "This host is not served here."),
    Problem("too-many-requests", 429, "Too many requests", "Too many requests."),
    Problem(
        "headers-too-large", 431, "Header fields too large", "The request head is larger than is read.", closes=True
    ),
    Problem(
        "internal-error", 500, "Internal error", "The gateway failed; the request may or may not have been served."
    ),
    Problem("not-implemented", 501, "Not implemented", "The gateway cannot do this."),
    Problem("upgrade-not-supported", 501, "Upgrade not supported", "A WebSocket begins with a whole handshake."),
    Problem("bad-gateway", 502, "Bad gateway", "The service behind did not answer as HTTP wants it."),
    Problem("unavailable", 503, "Unavailable", "The gateway cannot take this request just now."),
    Problem("identity-unavailable", 503, "Identity unavailable", "Nobody can tell just now whether this is valid."),
    Problem("gateway-timeout", 504, "Gateway timeout", "The service behind did not answer in time."),
    Problem("version-not-supported", 505, "Version not supported", "HTTP/1.1 is what is spoken here.", closes=True),
    Problem("loop-detected", 508, "Loop detected", "The request has already been through this gateway."),
)

#: By short name.
PROBLEMS = {entry.code: entry for entry in _ALL}

_BY_STATUS = {entry.status: entry for entry in reversed(_ALL)}


def problem(code: str, status: int) -> Problem:
    """Return what to say of `code`, or of `status` where nobody knows the name."""
    return PROBLEMS.get(code) or _BY_STATUS.get(status) or PROBLEMS["internal-error"]
