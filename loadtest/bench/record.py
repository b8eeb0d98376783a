"""What recording costs, and what reading costs the data plane: `python -m loadtest.bench.record`.

Prints nanoseconds per recorded decision; then, with many tenants, how long a scrape takes and how long a loop that
turns all the time, as the data plane's does, has to wait for the interpreter while another thread scrapes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.clock import Clock
from gateway.config import load
from gateway.ports import Decision
from gateway.telemetry import Telemetry
from gateway.telemetry.slots import SLOT
from policies.charge import Plan, Reading, Refusal
from policies.request import Class, Kind, Principal, RequestFacts
from policies.units import Micros
from policies.verdict import Outcome, Verdict

__all__ = ["main"]

_SWITCH_SECONDS = 0.0005  # as `gateway/serve.py` sets it
_ROUNDS = 20
_START: Micros = 2_000_000_000_000_000

_CONFIG = """
[upstream]
url = "http://127.0.0.1:9"
[backstop]
quota = "1000/s"
[auth]
max_unlisted_tenants = 20000
[telemetry]
decision_log = {log}
"""


class _Stopped(Clock):
    """A clock that a scrape sees stand where the counts end."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        super().__init__()
        self.at = _START

    def now(self) -> Micros:
        return self.at


def _telemetry(folder: Path, log: str, clock: Clock) -> Telemetry:
    path = folder / "gateway.toml"
    path.write_text(_CONFIG.format(log=f'"{log}"'))
    loaded = load(path, {})
    return Telemetry(loaded.settings, loaded.policies, clock)


def _decisions(tenants: int, outcome: Outcome) -> list[Decision]:
    refusals = (Refusal("key", 1000),) if outcome is Outcome.REFUSED else ()
    reading = Reading(refusals, (1.0, 1.0))
    facts = RequestFacts("GET", "/v1/things/42", "192.0.2.1")
    made = []
    for number in range(tenants):
        tenant = f"tenant-{number}"
        plan = Plan(tenant, "ci", Class.INTERACTIVE, 1.0, (), (), (), None)
        verdict = Verdict(plan, reading, _START, refusals[0] if refusals else None)
        principal = Principal(Kind.USER, tenant, "ci", listed=False)
        decision = Decision("01JE", facts, principal, Class.INTERACTIVE, -1, _START, verdict)
        decision.outcome, decision.status, decision.limit = outcome, 200, "key" if refusals else ""
        decision.decide_ns, decision.upstream_us = 2_000, 12_000
        made.append(decision)
    return made


def _nanoseconds(telemetry: Telemetry, decisions: Sequence[Decision]) -> float:
    best = float("inf")
    for lap in range(_ROUNDS):
        now = _START + lap * 250_000
        began = time.perf_counter_ns()
        for decision in decisions:
            telemetry.record(decision, now)
        best = min(best, (time.perf_counter_ns() - began) / len(decisions))
    return best


def _fill(telemetry: Telemetry, decisions: Sequence[Decision], slots: int) -> Micros:
    now = _START
    for _ in range(slots):
        for decision in decisions:
            telemetry.record(decision, now)
        telemetry.tenants.advance(now)
        now += SLOT
    return now - 1


def _waits(work: Callable[[], object]) -> tuple[float, float, float]:
    """Run `work` in a thread; return its seconds, the loop's longest wait and its 99th percentile in milliseconds."""
    took: list[float] = []

    def run() -> None:
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)

    thread = threading.Thread(target=run)
    gaps = []
    thread.start()
    last = time.perf_counter()
    while thread.is_alive():
        time.sleep(0)  # gives the interpreter away and takes it back, as every turn of a loop does
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    thread.join()
    gaps.sort()
    return took[0], gaps[-1] * 1000, gaps[int(len(gaps) * 0.99)] * 1000


def main(tenants: int = 10_000) -> None:
    """Measure and print."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    with TemporaryDirectory() as folder:
        for log in ("off", str(Path(folder) / "decisions.log")):
            telemetry = _telemetry(Path(folder), log, Clock())
            telemetry.start()
            for outcome in (Outcome.SERVED, Outcome.REFUSED):
                cost = _nanoseconds(telemetry, _decisions(100, outcome) * 20)
                print(f"record, {outcome.value:8} log {'off' if log == 'off' else 'on ':3}   {cost:6.0f} ns")
            telemetry.stop()
        clock = _Stopped()
        telemetry = _telemetry(Path(folder), "off", clock)
        both = [decision for outcome in (Outcome.SERVED, Outcome.REFUSED) for decision in _decisions(tenants, outcome)]
        now = clock.at = _fill(telemetry, both, 12)
        works: dict[str, Callable[[], object]] = {
            "closing a slot": lambda: telemetry.tenants.advance(now),
            "a window": lambda: telemetry.tenants.report("1h", now + 1),
            "a scrape": lambda: telemetry.metrics.render(""),
        }
        for decision in _decisions(tenants, Outcome.SERVED):
            telemetry.record(decision, now + 1)
        for name, work in works.items():
            seconds, worst, p99 = _waits(work)
            print(
                f"{name:15} {tenants} tenants   {seconds * 1000:6.1f} ms; a loop waits {worst:.2f} ms, p99 {p99:.3f} ms"
            )


if __name__ == "__main__":
    main()
