"""The keys of all issuers of one configuration, and which of them must be kept fresh."""

from __future__ import annotations

from gateway.clock import Clock
from gateway.config.auth import IssuerEntry
from gateway.identity.keys import Keys, keys_of_file, keys_of_secret
from gateway.identity.keyset import KeySet
from policies.units import SECOND

__all__ = ["Epoch", "Keyring"]


class Epoch:
    """How often the keys that verify have changed; written by the background's thread, read by the data plane's."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def turn(self) -> None:
        """Say that what was verified before may not verify now."""
        self.number += 1


class Keyring:
    """Finds the keys of entries, and keeps those that must be kept fresh."""

    def __init__(self, clock: Clock) -> None:
        self.epoch = Epoch()
        self.key_sets: list[KeySet] = []
        self._clock = clock

    def keys(self, entry: IssuerEntry, path: str) -> Keys:
        """Return the keys of an entry, of which exactly one kind is configured."""
        secret = entry.secret.get_secret_value()
        if secret:
            return keys_of_secret(secret, entry.algorithms, f"{path}.secret")
        if entry.jwks_file is not None:
            return keys_of_file(entry.jwks_file, entry.algorithms, f"{path}.jwks_file")
        made = KeySet(
            entry.issuer,
            entry.jwks_url or "",
            entry.algorithms,
            stale_us=entry.jwks_stale,
            allow_private=entry.allow_private,
            clock=self._clock,
            changed=self.epoch.turn,
        )
        self.key_sets.append(made)
        return made

    def adopt(self, other: Keyring) -> None:
        """Go on with what the keyring of the configuration before has fetched, so that a reload is no outage."""
        for key_set in self.key_sets:
            for before in other.key_sets:
                key_set.adopt(before)

    def ages_seconds(self) -> dict[str, float]:
        """Return the age of the oldest key set of each issuer."""
        ages: dict[str, float] = {}
        for key_set in self.key_sets:
            ages[key_set.issuer] = max(ages.get(key_set.issuer, 0.0), key_set.age_us() / SECOND)
        return ages
