"""The demo as it is started by hand: real processes, real sockets, both modes of the same night."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gateway.demo.processes import Children
from gateway.errors import GatewayError
from tests.wire.waiting import SLACK

__all__: list[str] = []

SENTENCE = re.compile(
    r"of all calls ([\d.]+) % got through, and of those of the worst tenant \((\w+)\) ([\d.]+) %; "
    r"the light tenants together: ([\d.]+) %; of the attempts of the backfill: ([\d.]+ %|-)\."
)


def demo(*arguments: str) -> subprocess.Popen[str]:
    """Start the demo with its output in a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def played(mode: str) -> tuple[float, float, float, str]:
    """Play six seconds and return aggregate, worst and light ones, in per cent, and all that was printed."""
    with demo("--seconds", "6", "--mode", mode) as child:
        text, _ = child.communicate(timeout=120)
    assert child.returncode == 0, text
    found = SENTENCE.search(text)
    assert found is not None, text
    sized = re.search(r"^This run was sized to a service of (\d+) requests a second\.$", text, re.MULTILINE)
    assert sized is not None, text
    assert f"backstop {sized[1]}/s" in text
    return float(found[1]), float(found[3]), float(found[4]), text


def test_the_same_night_spares_everybody_or_only_the_backfill() -> None:
    """With Evenhand the worst tenant does as well as all together; with one bucket the aggregate hides who paid."""
    aggregate, worst, light, text = played("evenhand")
    assert aggregate >= 90
    assert worst >= 90
    assert light >= 95
    assert re.search(r"^backfill .* key [\d,.]+", text, re.MULTILINE), "held to its own quota"
    bucket_aggregate, bucket_worst, bucket_light, text = played("shared-bucket")
    assert bucket_aggregate >= 75, "nobody would look twice at that figure"
    assert bucket_light <= 65
    assert bucket_worst <= min(60, worst - 30)
    assert "backstop " in text


#: The demo with a quota of the backfill above the backstop, which `gateway.demo.tenants` takes from a constant.
WIDE = """
import sys
from gateway.demo import show, tenants
tenants._BACKFILL_PART = 1.5
sys.exit(show.show(6, "evenhand"))
"""


def test_a_quota_above_the_backstop_spares_everybody_too() -> None:
    """Where no key bucket holds the backfill its share does, and the gateway's own figures say the same."""
    ended = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, timeout=120, check=False)
    text = ended.stdout
    assert ended.returncode == 0, text + ended.stderr
    found = SENTENCE.search(text)
    assert found is not None, text
    assert float(found[4]) >= 95, "light tenants, of their calls"
    table = text[text.index("the end") :]
    rows = re.findall(r"^(\w+) .* ([\d.]+) % *$", table, re.MULTILINE)
    light = [float(in_profile) for tenant, in_profile in rows if tenant != "backfill"]
    assert len(light) == 12
    assert min(light) >= 90, "in profile, as /api/fairness has it"
    assert re.search(r"^backfill .* share [\d,.]+", table, re.MULTILINE), "held to its share"


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_it_ends_early_with_the_same_figures_and_leaves_nobody_behind(number: signal.Signals) -> None:
    """Ctrl-C is a way to end it, not an error; output comes at once and every second."""
    with demo("--seconds", "60") as child:
        assert child.stdout is not None
        assert "evenhand demo" in child.stdout.readline()
        lines = [child.stdout.readline() for _ in range(4)]
        assert any(text.startswith("Dashboard: http://127.0.0.1:") for text in lines), lines
        family = psutil.Process(child.pid).children(recursive=True)
        assert len(family) >= 2
        child.send_signal(number)
        began = time.monotonic()
        rest = child.stdout.read()
        assert child.wait(timeout=60) == 0
    assert time.monotonic() - began < 15 + SLACK
    assert SENTENCE.search(rest), rest
    assert "Traceback" not in rest
    assert "dashboard" not in rest[rest.index("the end") :], "what has ended is not offered"
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_a_demo_that_is_killed_leaves_nobody_behind() -> None:
    """Nothing can be done any more by who is killed: each child sees its pipe end."""
    with demo("--seconds", "60") as child:
        assert child.stdout is not None
        for text in child.stdout:
            if text.startswith("Dashboard"):
                break
        family = psutil.Process(child.pid).children(recursive=True)
        assert len(family) == 2
        child.kill()
    gone, alive = psutil.wait_procs(family, timeout=30)
    assert (len(gone), alive) == (2, [])


@pytest.mark.parametrize("wait", (0.03, 0.12))
def test_ctrl_c_at_once_is_no_traceback(wait: float) -> None:
    """Before anything is printed, while modules are still being imported."""
    code = "import os, signal, threading\nfrom gateway.__main__ import main\n"
    code += f"threading.Timer({wait}, os.kill, (os.getpid(), signal.SIGINT)).start()\nimport sys\n"
    code += "sys.argv[1:] = ['demo', '--seconds', '1']\nmain()\n"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode in {0, 130}
    assert "Traceback" not in ended.stderr


def test_a_child_that_dies_is_one_sentence(tmp_path: Path) -> None:
    """With its last words, and the others are ended."""
    with Children(tmp_path) as children:
        port, _ = children.origin()
        assert port > 0
        children.gateway(["gateway", "serve"], tmp_path / "missing.toml")
        for _ in range(600):
            if children._started[-1][1].poll() is not None:
                break
            time.sleep(0.05)
        with pytest.raises(GatewayError, match=r"gateway ended with 2: .*missing\.toml"):
            children.check()
