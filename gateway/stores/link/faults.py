"""What can go wrong with a shared store, by kind: one closed list, the same in answers, counters and documents.

Rules
1. A fault is a value. Nothing of the library, the system or the server is raised past the link.
2. A text never holds a password: what a server says of a login is not quoted, since some quote what they were sent.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import NamedTuple

__all__ = ["DROPPING", "KINDS", "STORE_WIDE", "UNREACHABLE", "ErrorReply", "StoreFault", "of_exception", "of_reply"]

#: Every kind there is, with what it means.
KINDS = {
    "timeout": "no answer in time",
    "refused": "no connection could be made",
    "dns": "the host's name does not resolve",
    "tls": "the TLS handshake failed",
    "auth": "user or password not accepted, or the user may not do what we need",
    "reset": "the connection was lost",
    "protocol": "what came is no reply of a Redis",
    "readonly": "the server takes no writes",
    "oom": "the server's memory is full",
    "loading": "the server is still loading its data",
    "busy": "the server is in a script that does not end",
    "masterdown": "a replica that has lost its primary",
    "clusterdown": "the cluster serves no such slot",
    "crossslot": "names of one call lie in different slots",
    "maxclients": "the server takes no more connections",
    "wrongtype": "a record is not what it should be",
    "noscript": "the server did not have the script; it was sent again",
    "error": "an error that has no kind of its own",
    "down": "not asked: the store is known to be down",
}

#: A reply of these says that this server is not the one to talk to now: the connection goes, a new one is made.
DROPPING = frozenset({"readonly", "loading", "masterdown", "clusterdown", "busy", "maxclients"})

#: A reply of these is about the whole store, and opens the circuit if it repeats; of others, about that one record.
STORE_WIDE = DROPPING | {"oom", "auth"}

#: What making a connection may raise; also of hosts and ports that are none, as a server may name them.
UNREACHABLE = (OSError, ValueError, OverflowError)

_CODES = {
    "READONLY": "readonly",
    "NOREPLICAS": "readonly",
    "MISCONF": "readonly",
    "OOM": "oom",
    "LOADING": "loading",
    "BUSY": "busy",
    "MASTERDOWN": "masterdown",
    "CLUSTERDOWN": "clusterdown",
    "CROSSSLOT": "crossslot",
    "WRONGTYPE": "wrongtype",
    "NOSCRIPT": "noscript",
    "NOAUTH": "auth",
    "WRONGPASS": "auth",
    "NOPERM": "auth",
}
#: What has no code of its own, by how it is worded.
_WORDS = (
    (re.compile(r"max(imum)? number of (cluster )?clients|max client connections", re.IGNORECASE), "maxclients"),
    (re.compile(r"invalid password|without any password|can't run this command|no permissions", re.IGNORECASE), "auth"),
    (re.compile(r"non local key|same slot", re.IGNORECASE), "crossslot"),
)
#: Before Redis 7 what a script's command was told stands inside the error of the script.
_INSIDE = re.compile(r": -?(" + "|".join(_CODES) + r")\s")
_LONGEST = 200


class StoreFault(NamedTuple):
    """Why there is no answer: one of `KINDS`, and a sentence for people."""

    kind: str
    text: str


class ErrorReply(str):
    """An error as the server worded it, its minus sign taken off."""

    __slots__ = ()

    @property
    def code(self) -> str:
        """Its first word, by which clients tell errors apart."""
        return self.partition(" ")[0]


def of_reply(reply: ErrorReply) -> StoreFault:
    """Return the fault that an error reply means."""
    kind = _CODES.get(reply.code, "")
    if not kind and (found := _INSIDE.search(reply)):
        kind = _CODES[found.group(1)]
    kind = kind or next((kind for words, kind in _WORDS if words.search(reply)), "error")
    shown = "".join(char if char.isprintable() else "?" for char in reply[:_LONGEST])
    return StoreFault(kind, f"the store says: {shown}")


def of_exception(error: BaseException) -> StoreFault:
    """Return the fault that an exception means while a connection is made."""
    if isinstance(error, ssl.SSLError):
        why = getattr(error, "reason", None) or "the connection was closed"
        return StoreFault("tls", f"the TLS handshake with the store failed: {why}")
    if isinstance(error, socket.gaierror | ValueError):
        return StoreFault("dns", "the name of the store's host does not resolve")
    if isinstance(error, TimeoutError):
        return StoreFault("timeout", "the store took too long to connect")
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return StoreFault("reset", "the store closed the connection while it was being made")
    return StoreFault("refused", "no connection to the store could be made")
