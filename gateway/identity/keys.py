"""The keys an issuer signs with, each pinned to one algorithm before any token is seen.

Rules
1. A key is found by (kid, algorithm) in a fixed set. A kid is an opaque string: no path, no query, no address. A token
   without one is checked only if the set holds exactly one key.
2. A key serves exactly one algorithm (RFC 8725, 3.1): its own `alg`, or else the first configured one that its type can
   serve. The header of a token can therefore only agree with the pin or fail: it never chooses.
3. Keys are parsed and prepared once, here. PyJWT prepares on every call, which for HMAC costs more than the HMAC.
4. A key set at an address (`jwks_url`) is another object with `find` (`keyset.py`); nothing else needs to know.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jwt
import orjson
from jwt.algorithms import Algorithm, get_default_algorithms

from gateway.errors import ConfigError, Fault

__all__ = ["FixedKeys", "Key", "Keys", "keys_of_file", "keys_of_secret", "keys_of_set"]

_LOG = logging.getLogger("evenhand.identity")

_RSA = ("RSA", None)
#: What can verify with which type of key and curve (RFC 7518, 3.1; RFC 8037, 3.1). Neither `none` nor HMAC is here: a
#: key set is a public document, and a secret in one would be the confusion of CVE-2022-29217 by configuration.
_KEY_TYPES: dict[str, tuple[tuple[str, str | None], ...]] = {
    "RS256": (_RSA,),
    "RS384": (_RSA,),
    "RS512": (_RSA,),
    "PS256": (_RSA,),
    "PS384": (_RSA,),
    "PS512": (_RSA,),
    "ES256": (("EC", "P-256"),),
    "ES384": (("EC", "P-384"),),
    "ES512": (("EC", "P-521"),),
    "EdDSA": (("OKP", "Ed25519"), ("OKP", "Ed448")),
}

#: Members that make a JWK private: the gateway verifies, so it never even parses them (RFC 7518, 6.2.2 and 6.3.2).
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})


class Key:
    """One key with its one algorithm."""

    __slots__ = ("_algorithm", "_key", "name")

    def __init__(self, name: str, algorithm: Algorithm, prepared: object) -> None:
        self.name = name
        self._algorithm = algorithm
        self._key = prepared

    def verify(self, signed: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is this key's over `signed`."""
        return self._algorithm.verify(signed, self._key, signature)

    @property
    def weakness(self) -> str | None:
        """What is wrong with the key's length (RFC 7518, 3.2 and 3.3), if anything."""
        return self._algorithm.check_key_length(self._key)


class Keys(Protocol):
    """Where a verifier finds its keys."""

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of this id if it is pinned to `algorithm`."""
        ...


class FixedKeys:
    """A set of keys that changes only with the configuration."""

    __slots__ = ("_keys", "_sole")

    def __init__(self, keys: Mapping[tuple[str | None, str], Key]) -> None:
        self._keys = keys
        self._sole = next(iter(keys.values())) if len(keys) == 1 else None

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of this id if it is pinned to `algorithm`; without an id, the only key there is."""
        if kid is not None:
            return self._keys.get((kid, algorithm))
        return self._sole if self._sole is not None and self._sole.name == algorithm else None


def keys_of_secret(secret: str, algorithms: Sequence[str], path: str) -> FixedKeys:
    """Return the one shared key of an issuer, pinned to the first HMAC algorithm configured.

    Raises ConfigError if there is none, or if the secret is the text of a public key (the classic confusion).
    """
    name = next((algorithm for algorithm in algorithms if algorithm.startswith("HS")), None)
    if name is None:
        raise ConfigError((Fault(path, "a shared secret needs HS256, HS384 or HS512 among the algorithms"),))
    algorithm = get_default_algorithms()[name]
    try:
        key = Key(name, algorithm, algorithm.prepare_key(secret))
    except jwt.InvalidKeyError as error:
        raise ConfigError((Fault(path, "expected a secret, not a key in PEM, DER, SSH or JWK form"),)) from error
    _warn_of_weakness(key, path)
    if unused := [other for other in algorithms if other != name]:
        _LOG.warning("%s: is used with %s only, never with %s (RFC 8725, 3.1)", path, name, ", ".join(unused))
    return FixedKeys({(None, name): key})


def keys_of_file(file: Path, algorithms: Sequence[str], path: str) -> FixedKeys:
    """Return the keys of a JWK set on disk. Raises ConfigError if it cannot be read or holds none that is usable."""
    try:
        document: object = orjson.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError((Fault(path, f"cannot read {file}: {error.strerror}"),)) from error
    except orjson.JSONDecodeError as error:
        raise ConfigError((Fault(path, f"{file} is not JSON"),)) from error
    return keys_of_set(document, algorithms, path)


def keys_of_set(document: object, algorithms: Sequence[str], path: str) -> FixedKeys:
    """Return the usable keys of a JWK set (RFC 7517, section 5: members not understood are ignored).

    Raises ConfigError if none is usable, or two claim the same kid and algorithm.
    """
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise ConfigError((Fault(path, 'expected a JWK set: an object with a list "keys"'),))
    keys: dict[tuple[str | None, str], Key] = {}
    for kid, key in _usable(members, algorithms):
        if (kid, key.name) in keys:
            raise ConfigError((Fault(path, f"two keys of the set have the same kid and algorithm {key.name}"),))
        keys[kid, key.name] = key
        _warn_of_weakness(key, path)
    if not keys:
        raise ConfigError((Fault(path, f"no key of the set verifies {', '.join(algorithms)}"),))
    return FixedKeys(keys)


def _usable(members: Iterable[object], algorithms: Sequence[str]) -> Iterable[tuple[str | None, Key]]:
    for member in members:
        if isinstance(member, dict) and (key := _key(member, algorithms)) is not None:
            kid = member.get("kid")
            if kid is None or isinstance(kid, str):
                yield kid, key


def _key(member: dict[str, Any], algorithms: Sequence[str]) -> Key | None:
    operations = member.get("key_ops", ["verify"])
    if member.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    name = _pin(member, algorithms)
    if name is None:
        return None
    try:
        parsed = jwt.PyJWK({k: v for k, v in member.items() if k not in _PRIVATE}, name)
        return Key(name, parsed.Algorithm, parsed.Algorithm.prepare_key(parsed.key))
    except (jwt.PyJWTError, ValueError, TypeError):  # a member that lies about its type, or holds no valid point
        return None


def _pin(member: dict[str, Any], algorithms: Sequence[str]) -> str | None:
    """Return the one algorithm this key serves, or None."""
    kty, crv = member.get("kty"), member.get("crv")
    stated = member.get("alg")
    for name in algorithms:
        fits = (kty, crv if kty in ("EC", "OKP") else None) in _KEY_TYPES.get(name, ())
        if fits and stated in (None, name):
            return name
    return None


def _warn_of_weakness(key: Key, path: str) -> None:
    if key.weakness is not None:
        _LOG.warning("%s: the key is shorter than RFC 7518 requires for %s", path, key.name)
