"""What went wrong, by kind."""

from __future__ import annotations

import socket
import ssl

import pytest

from gateway.stores.link.faults import KINDS, ErrorReply, of_exception, of_reply

__all__: list[str] = []

#: As servers word it; of scripts as Redis 6.2 does, as 7 does, and as Valkey does.
REPLIES = (
    ("READONLY You can't write against a read only replica.", "readonly"),
    ("ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -READONLY You can't write", "readonly"),
    ("READONLY You can't write against a read only replica. script: 8, on @user_script:1.", "readonly"),
    ("NOREPLICAS Not enough good replicas to write.", "readonly"),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist", "readonly"),
    ("OOM command not allowed when used memory > 'maxmemory'.", "oom"),
    ("ERR Error running script (call to f_0): @user_script:1: -OOM command not allowed when used memory", "oom"),
    ("LOADING Redis is loading the dataset in memory", "loading"),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "busy"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "masterdown"),
    ("CLUSTERDOWN The cluster is down", "clusterdown"),
    ("CLUSTERDOWN Hash slot not served", "clusterdown"),
    ("CROSSSLOT Keys in request don't hash to the same slot", "crossslot"),
    ("ERR Script attempted to access a non local key in a cluster node", "crossslot"),
    ("ERR max number of clients reached", "maxclients"),
    ("ERR max number of clients + cluster connections reached", "maxclients"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", "wrongtype"),
    ("ERR Error running script (call to f_0): @user_script:1: WRONGTYPE Operation against a key", "wrongtype"),
    ("NOSCRIPT No matching script. Please use EVAL.", "noscript"),
    ("NOAUTH Authentication required.", "auth"),
    ("WRONGPASS invalid username-password pair or user is disabled.", "auth"),
    ("NOPERM this user has no permissions to run the 'eval' command", "auth"),
    ("ERR invalid password", "auth"),
    ("ERR AUTH <password> called without any password configured for the default user.", "auth"),
    ("ERR The user executing the script can't run this command or subcommand script: 8", "auth"),
    (
        "ERR ACL failure in script: User u has no permissions to run the 'set' command script",
        "auth",
    ),
    ("ERR unknown command `EVALSHA`", "error"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", "error"),
    ("", "error"),
)


@pytest.mark.parametrize(("text", "kind"), REPLIES)
def test_an_error_reply_has_a_kind(text: str, kind: str) -> None:
    """By its code, by the code inside the error of a script, or by how it is worded."""
    fault = of_reply(ErrorReply(text))
    assert fault.kind == kind
    assert fault.kind in KINDS


def test_what_a_server_says_is_shown_short_and_plain() -> None:
    """It goes into logs."""
    assert of_reply(ErrorReply("ERR a\x1b[2J\r")).text == "the store says: ERR a?[2J?"
    assert len(of_reply(ErrorReply("x" * 9_000)).text) < 300


@pytest.mark.parametrize(
    ("error", "kind"),
    (
        (ConnectionRefusedError(), "refused"),
        (FileNotFoundError(), "refused"),
        (OSError(113, "No route to host"), "refused"),
        (socket.gaierror(-2, "Name or service not known"), "dns"),
        (UnicodeError("label too long"), "dns"),
        (ValueError("embedded null byte"), "dns"),
        (OverflowError("port must be 0-65535"), "refused"),
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "reset"),
        (ssl.SSLCertVerificationError("certificate verify failed"), "tls"),
    ),
)
def test_an_exception_has_a_kind(error: Exception, kind: str) -> None:
    """Of sockets, resolvers and TLS."""
    assert of_exception(error).kind == kind
