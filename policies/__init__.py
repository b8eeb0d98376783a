"""The core: decides whether a request is served, and touches nothing.

Theory of operation
-------------------
A shared bucket is drained by arrival, so whoever sends most gets most of it, and the limiter that keeps the service
standing hands the shortage to those who did not cause it. Everything here exists so that this cannot happen.

A request has facts (what was observed) and a principal (who was proved). From these the core *plans* charges: one for
each named policy that applies, one for its key, one for its tenant, seats where concurrency is limited, and a share of
the backstop, which is what the service can really serve. A store *takes* all of them or none and answers with readings.
The core *judges* the readings, and the verdict is a value: admitted, or refused by these limits, this one being named,
and worth asking again after so long.

    facts, principal --classify, exempt, rank--> plan --(a store takes)--> reading --judge--> verdict --settle--> books

The limits form a tree. The backstop is shared between tenants, max-min by weight, whenever demand exceeds it: a tenant
below its fair share is never refused because of another. A tenant's bucket holds its credentials together; a key's
bucket is one credential, one CI project, or one address of a caller who proved nothing. Class (interactive before
batch) orders the requests inside a key, a tenant and a share, never one tenant before another. A key without a quota of
its own gets one from its own past, in a way that a flood cannot teach.

Rules
-----
1. Time is an argument. Nothing here reads a clock; instants are integer microseconds, and one that lies before the last
   one seen mints nothing.
2. Chance is an argument. Jitter and the draw of a percentage come from outside, so the same inputs give the same
   verdict, in a test, in the simulator and in a replay.
3. A refusal is a value and costs nothing: not its key, not its tenant, not the backstop. Exceptions mean a wrong
   document (`PolicyError`) or a bug.
4. All or none. No request is charged in part, and nothing is charged twice for one request.
5. Own limits come first. A caller over its own quota is never a victim of the backstop, in any figure.
6. An exemption is a higher quota that still counts. There is no bypass.
7. Keys are named characteristics, built from keywords and printed with names; two callers share a bucket if and only
   if they are the same caller.
8. Nothing here imports asyncio, files, sockets, logging, the clock, randomness, another distribution or the gateway.
   Import contracts and tests/test_house.py hold this.

Reading order
-------------
`units` and `request` (the nouns), `policy` (what an operator wrote), `charge` and `verdict` (question and answer), then
`admit`, which is the decision. `kernels` holds the algorithms under their usual names: `gcra` for one bucket, `lease`
and `seats` for what several processes have of one, `fairshare` for the backstop. `classify`, `exempt`, `rank`, `cost`
and `sizing` say which limits apply and how large they are; `posture` what to answer without a store; `settle` how the
books are corrected afterwards; `problem` what the caller is told. tests/policies/test_admit.py is the decision as a
table.
"""
