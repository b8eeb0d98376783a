"""The canary: each minute, in this process, requests that must come out in one way go as far as the verdict.

What broke in public accounts of refusal paths was never the counter: an exemption stopped exempting and nobody noticed,
or anybody could exempt himself. So, by name of the check:

- `exempt`: a credential with an exemption is exempt, and so is whoever each exemption in force is for.
- `forged`: a peer that nobody trusts changes nothing about itself by any field it sends, and no managed field of its
  making goes on.
- `limited`: a tenant over its limit is refused.

Rules
1. The line is the real one (parser, resolver, planner, store, judge, the fields of an upstream) and the policies are
   those in force; the buckets, the tenant and its tokens are the canary's own, and nobody records. No figure moves.
2. Nothing is sent anywhere: a request ends at its verdict.
3. A check that raises has failed, and the log says why; failing is told once, when it begins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from gateway.clock import Clock
from gateway.config import Settings
from gateway.identity.job import OpaqueJobs
from gateway.identity.pat import Pats, digest, mint
from gateway.identity.resolver import CredentialResolver, stranger_table
from gateway.pipeline import Pipeline
from gateway.ports import Decision, Headers
from gateway.proxy.address import Addresses
from gateway.proxy.answer import fields
from gateway.proxy.headers import RequestFields
from gateway.proxy.ids import RequestIds
from gateway.proxy.parse import Head, Parsed, Parser
from gateway.stores.memory import MemoryStore
from policies.admit import Planner
from policies.classify import Classifier
from policies.cost import UNMATCHED
from policies.policy import CredentialRules, Exemption, Match, PolicySet, Quota, TenantRules
from policies.request import Kind, Principal
from policies.units import SECOND, Micros, Rate
from policies.verdict import Outcome

__all__ = ["CHECKS", "Canary"]

_LOG = logging.getLogger("evenhand.canary")

CHECKS = ("exempt", "forged", "limited")

_TENANT = "evenhand-canary"
_EXEMPT, _LIMITED = "exempt", "limited"
_KEYS = 64
#: Documentation addresses (RFC 5737, RFC 3849): nobody's proxy, unless everybody is one.
_PEERS = ("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1")
_PSEUDONYM = b"evenhand-canary"
_FORGED: Headers = [
    (b"evenhand-tenant", _TENANT.encode()),
    (b"evenhand_tenant", _TENANT.encode()),
    (b"evenhand-credential", _EXEMPT.encode()),
    (b"evenhand_credential", _EXEMPT.encode()),
    (b"evenhand-class", b"interactive"),
    (b"evenhand-exempt", b"true"),
    (b"evenhand-bypass", b"1"),
    (b"x-forwarded-for", b"127.0.0.1"),
    (b"forwarded", b"for=127.0.0.1"),
    (b"x-real-ip", b"127.0.0.1"),
    (b"connection", b"evenhand-tenant, x-forwarded-for"),
]
_MANAGED = frozenset({b"evenhand-tenant", b"evenhand-credential", b"x-forwarded-for"})
_GONE = frozenset({b"forwarded", b"x-real-ip"})


class _Nobody:
    """Records nothing."""

    def record(self, decision: Decision, now: Micros) -> None:
        """Count nothing."""


class Canary:
    """The checks of one configuration. `found` is what they found last; empty before the first run."""

    def __init__(self, settings: Settings) -> None:
        self.found: Mapping[str, bool] = {}
        self._clock = Clock()
        self._addresses = Addresses(settings.server.trusted_proxies, settings.server.ipv6_prefix)
        self._fields = RequestFields(settings.upstream, _PSEUDONYM)
        self._strangers = stranger_table(anonymous=settings.auth.anonymous, unknown=settings.auth.unknown)
        self._tokens = {name: mint() for name in (_EXEMPT, _LIMITED)}
        self._pats = Pats(
            (bytes.fromhex(digest(token).removeprefix("sha256:")), Principal(Kind.USER, _TENANT, name))
            for name, token in self._tokens.items()
        )

    def run(self, policies: PolicySet) -> None:
        """Run every check against `policies`. Raises nothing."""
        found = {}
        for name, check in zip(CHECKS, (self._exempts, self._ignores_forged, self._limits), strict=True):
            try:
                found[name] = check(policies)
            except Exception:  # noqa: BLE001 - rule 3
                _LOG.exception("the canary %s cannot run", name)
                found[name] = False
            if not found[name] and self.found.get(name, True):
                _LOG.warning("the canary %s does not find what it expects", name)
        self.found = found

    def _exempts(self, policies: PolicySet) -> bool:
        line = self._line(self._twin(policies))
        for _ in range(3):
            decision = self._ask(line, policies, self._tokens[_EXEMPT])
            if decision.exemption != _TENANT or _refused_by_key(decision):
                return False
        return all(_raises(policies, one, self._clock.now()) for one in policies.exemptions)

    def _limits(self, policies: PolicySet) -> bool:
        line = self._line(self._twin(policies))
        first, second = (self._ask(line, policies, self._tokens[_LIMITED]) for _ in range(2))
        return not _refused_by_key(first) and _refused_by_key(second) and not second.exemption

    def _ignores_forged(self, policies: PolicySet) -> bool:
        peer = next((peer for peer in _PEERS if not self._addresses.trusts(peer)), None)
        if peer is None:
            return True  # everybody is trusted, which is warned of elsewhere
        heads = [Head(b"GET", b"/", [(b"host", b"canary.invalid"), *more], peer) for more in ([], _FORGED)]
        line, parser = self._line(policies), self._parser(policies)
        said = []
        for head in heads:
            parsed = parser.parse(head)
            decision = _decide(line, head, parsed)
            address = parsed.facts.address if parsed.facts else ""
            said.append((decision.principal, decision.cls, decision.exemption, address))
            if not self._clean(head, parsed, decision, peer):
                return False
        return said[0] == said[1]

    def _clean(self, head: Head, parsed: Parsed, decision: Decision, peer: str) -> bool:
        """Return whether what would go on says nothing of the caller's making about the caller."""
        sent = [(name.replace(b"_", b"-"), value) for name, value in fields(self._fields.write(head, parsed, decision))]
        managed = [name for name, _ in sent if name in _MANAGED]
        forged = any(value == _TENANT.encode() for name, value in sent if name in _MANAGED)
        named = dict(sent).get(b"x-forwarded-for")
        gone = not _GONE & {name for name, _ in sent}
        return len(managed) == len(set(managed)) and not forged and named == peer.encode() and gone

    def _twin(self, policies: PolicySet) -> PolicySet:
        """Return the policies in force with a tenant of the canary's, without routes and named policies."""
        once = Quota(Rate(Fraction(1, 3600)), 1.0)
        rules = {name: CredentialRules(name, once) for name in self._tokens}
        exemption = Exemption(
            _TENANT,
            Match(tenant=_TENANT, credential=_EXEMPT),
            reason="the canary",
            owner="evenhand",
            expires_us=self._clock.now() + 3600 * SECOND,
            quota=Quota(Rate(Fraction(1000, 3600)), 1000.0),
        )
        return replace(
            policies,
            tenants={**policies.tenants, _TENANT: TenantRules(_TENANT, credentials=rules)},
            routes=(),
            policies=(),
            exemptions=(exemption,),
        )

    def _line(self, policies: PolicySet) -> Pipeline:
        resolver = CredentialResolver(self._pats, OpaqueJobs(), (), self._strangers, SECOND, self._clock)
        store = MemoryStore(policies, _KEYS, self._clock.now())
        return Pipeline(policies, resolver, store, _Nobody(), self._clock, float)

    def _parser(self, policies: PolicySet) -> Parser:
        ids = RequestIds(self._clock)
        return Parser(self._addresses, ids, Classifier(policies).route, pseudonym=_PSEUDONYM)

    def _ask(self, line: Pipeline, policies: PolicySet, token: str) -> Decision:
        headers = [(b"host", b"canary.invalid"), (b"authorization", b"Bearer " + token.encode())]
        head = Head(b"GET", b"/", headers, _PEERS[0])
        return _decide(line, head, self._parser(policies).parse(head))


def _decide(line: Pipeline, head: Head, parsed: Parsed) -> Decision:
    """Take a head to its verdict, and keep its charge."""
    if parsed.facts is None or parsed.rejection is not None:
        raise ValueError(f"a request of the canary's cannot be read: {parsed.rejection}")
    decision = line.decide(parsed.facts, head.headers, parsed.request_id)
    decision.sent = True
    line.settle(decision, Outcome.SERVED, 200)
    return decision


def _refused_by_key(decision: Decision) -> bool:
    verdict = decision.verdict
    return verdict is None or any(refused.limit == "key" for refused in verdict.reading.refused)


def _raises(policies: PolicySet, exemption: Exemption, now: Micros) -> bool:
    """Return whether somebody whom `exemption` covers has more by it, or it has ended."""
    if exemption.expires_us <= now:
        return True
    match = exemption.match
    tenants = [match.tenant] if match.tenant else [*policies.tenants, _TENANT]
    route = next((n for n, one in enumerate(policies.routes) if one.name == match.route), UNMATCHED)
    cls = policies.default_class if match.cls is None else match.cls
    planner = Planner(policies, now)
    for tenant in tenants:
        rules = policies.tenants.get(tenant)
        listed = list(rules.credentials) if rules else []
        for credential in [match.credential] if match.credential else [*listed, "any"]:
            principal = Principal(match.identity or Kind.USER, tenant, credential, listed=rules is not None)
            plan = planner.plan(principal, cls, route, _PEERS[0], match.method or "GET")
            principal.plan = None  # or the two would keep each other until they are collected
            if plan.exemption:
                return True
    return False
