"""An answer of our own, in bytes: what it says, in the form that its caller can read.

Rules
1. The members are the same in every form; only the form differs.
2. Whatever a caller or an operator chose (a tenant's id, a policy's name) is data: escaped in HTML and Markdown.
3. A HEAD request gets the fields of the answer it would have had, Content-Length included, and no body
   (RFC 9110 section 9.3.2).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import orjson

from gateway.proxy.accept import Form
from gateway.proxy.call import Headers
from policies.native import mypyc_attr
from policies.problem import Members

__all__ = ["STATUS_LINES", "Answer", "Asked", "content", "fields", "lines", "pieces"]


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Asked:
    """What of a request shapes an answer of our own: whether it was HEAD, its Accept and its Origin."""

    head: bool
    accept: bytes | None
    origin: bytes | None

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(
        self,
        head: bool = False,  # noqa: FBT002 - as a dataclass has it, by place
        accept: bytes | None = None,
        origin: bytes | None = None,
    ) -> None:
        self.head = head
        self.accept = accept
        self.origin = origin


@mypyc_attr(acyclic=True, free_list_len=1)
class Answer:
    """A whole response, in pieces that are joined once, as it is written.

    `head` begins with the status line and is complete but for Connection, `said` is the body; `close` says that the
    connection ends with it.
    """

    __slots__ = ("_head", "_said", "close", "status")

    def __init__(self, status: int, head: list[bytes], said: list[bytes], *, close: bool = False) -> None:
        self.status = status
        self._head = head
        self._said = said
        self.close = close

    @property
    def headers(self) -> Headers:
        """The fields one by one, for a server that writes them itself."""
        _, _, said = b"".join(self._head).partition(b"\r\n")
        return fields(said)

    @property
    def body(self) -> bytes:
        """The body."""
        return b"".join(self._said)

    def wire(self, *, bodiless: bool = False) -> bytes:
        """Return the response as HTTP/1.1 bytes, for a server that writes it in one piece."""
        end = b"connection: close\r\n\r\n" if self.close else b"\r\n"
        return b"".join([*self._head, end] if bodiless else [*self._head, end, *self._said])


#: By status; each ends its line.
STATUS_LINES: Final = tuple(
    f"HTTP/1.1 {number} {HTTPStatus(number).phrase if number in set(HTTPStatus) else ''}\r\n".encode("ascii")
    for number in range(600)
)


def lines(headers: Headers) -> bytes:
    """Return header fields as lines."""
    return b"".join([b"%b: %b\r\n" % (name, value) for name, value in headers])


def fields(lines: bytes) -> Headers:
    """Return the header fields of lines, one by one."""
    found: Headers = []
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        found.append((name, value))
    return found


#: What each request has of its own, and what stands around it in the JSON of a problem. A request id needs no escape.
_PLACES: Final = {
    "instance": (b'"urn:evenhand:request:', b'"'),
    "violated-policies": (b"", b""),
    "retry_after": (b"", b""),
    "retry_after_ms": (b"", b""),
}


def pieces(members: Members) -> tuple[bytes, ...]:
    """Return the JSON of `members` in pieces: between them goes what each request has of its own, in their order."""
    found: list[bytes] = []
    said = b"{"
    for name, value in members.items():
        said += orjson.dumps(name) + b":"
        if name in _PLACES:
            before, after = _PLACES[name]
            found.append(said + before)
            said = after
        else:
            said += orjson.dumps(value)
        said += b","
    return (*found, said[:-1] + b"}")


def content(members: Members, form: Form) -> tuple[bytes, bytes]:
    """Return the Content-Type and the body that says `members`."""
    media_type, write = _FORMS[form]
    return media_type, write(members)


# Whatever Markdown, GitHub's autolinks included, could read as more than text.
_MARKDOWN: Final = re.compile(r"[\\`*_\[\]()<>&#|~!:@]|\.(?=\S)")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _markdown(members: Members) -> bytes:
    def escaped(value: object) -> str:
        return _MARKDOWN.sub(r"\\\g<0>", _plain(value))

    rest = "".join(f"- {escaped(name)}: {escaped(value)}\n" for name, value in members.items() if name not in _PROSE)
    return f"# {members['status']} {escaped(members['title'])}\n\n{escaped(members['detail'])}\n\n{rest}".encode()


def _html(members: Members) -> bytes:
    def escaped(value: object) -> str:
        return html.escape(_plain(value))

    title = f"{members['status']} {escaped(members['title'])}"
    rest = "".join(
        f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>\n" for name, value in members.items() if name not in _PROSE
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<h1>{title}</h1>\n<p>{escaped(members['detail'])}</p>\n<dl>\n{rest}</dl>\n</html>\n"
    ).encode()


_PROSE: Final = frozenset({"title", "status", "detail"})
_FORMS: dict[Form, tuple[bytes, Callable[[Members], bytes]]] = {
    Form.JSON: (b"application/problem+json", orjson.dumps),
    Form.MARKDOWN: (b"text/markdown; charset=utf-8", _markdown),
    Form.HTML: (b"text/html; charset=utf-8", _html),
}
