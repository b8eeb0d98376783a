"""A wheel whose hot path is compiled: `HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip install .`, which needs a C compiler.

Without that variable nothing here runs, and the wheel is pure Python. Compiled or not, the code is the same and does
the same; compiled, our part of a proxied request takes a quarter of the time (loadtest/README.md).

Rules
1. Compiled are the modules that a request passes through, as one group, so that they call each other directly.
2. What a module says of its types is relied upon: mypyc compiles only what mypy finds consistent.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["MODULES", "CompiledHook"]

#: The path of a request, from the wire to the books.
MODULES = (
    "gateway/clock.py",
    "gateway/dashboard/recent.py",
    "gateway/history/identity.py",
    "gateway/history/intake.py",
    "gateway/history/meter.py",
    "gateway/history/packing.py",
    "gateway/history/peaks.py",
    "gateway/identity/answer.py",
    "gateway/identity/cache.py",
    "gateway/identity/credentials.py",
    "gateway/identity/resolver.py",
    "gateway/pipeline.py",
    "gateway/ports.py",
    "gateway/proxy/accept.py",
    "gateway/proxy/accepted.py",
    "gateway/proxy/address.py",
    "gateway/proxy/addresses.py",
    "gateway/proxy/answer.py",
    "gateway/proxy/asgi.py",
    "gateway/proxy/call.py",
    "gateway/proxy/connection.py",
    "gateway/proxy/dates.py",
    "gateway/proxy/deadlines.py",
    "gateway/proxy/exchange.py",
    "gateway/proxy/farewell.py",
    "gateway/proxy/framing.py",
    "gateway/proxy/front.py",
    "gateway/proxy/guard.py",
    "gateway/proxy/guest.py",
    "gateway/proxy/headers.py",
    "gateway/proxy/ids.py",
    "gateway/proxy/lane.py",
    "gateway/proxy/line.py",
    "gateway/proxy/names.py",
    "gateway/proxy/parse.py",
    "gateway/proxy/passage.py",
    "gateway/proxy/pool.py",
    "gateway/proxy/reader.py",
    "gateway/proxy/rear.py",
    "gateway/proxy/refuse.py",
    "gateway/proxy/response.py",
    "gateway/proxy/retry.py",
    "gateway/proxy/scope.py",
    "gateway/proxy/seats.py",
    "gateway/proxy/sink.py",
    "gateway/proxy/target.py",
    "gateway/proxy/turn.py",
    "gateway/proxy/upstream.py",
    "gateway/proxy/websocket.py",
    "gateway/proxy/writer.py",
    "gateway/stores/leased/shares.py",
    "gateway/stores/memory.py",
    "gateway/telemetry/breath.py",
    "gateway/telemetry/codebook.py",
    "gateway/telemetry/columns.py",
    "gateway/telemetry/decisions.py",
    "gateway/telemetry/gauges.py",
    "gateway/telemetry/labels.py",
    "gateway/telemetry/lines.py",
    "gateway/telemetry/recorder.py",
    "gateway/telemetry/refusals.py",
    "gateway/telemetry/slots.py",
    "gateway/telemetry/windows.py",
    "policies/admit.py",
    "policies/charge.py",
    "policies/classify.py",
    "policies/kernels/backlog.py",
    "policies/kernels/ceilings.py",
    "policies/kernels/cells.py",
    "policies/kernels/fairshare.py",
    "policies/kernels/gcra.py",
    "policies/kernels/member.py",
    "policies/kernels/portion.py",
    "policies/kernels/reservoir.py",
    "policies/kernels/roster.py",
    "policies/kernels/share.py",
    "policies/kernels/waterfill.py",
    "policies/problem.py",
    "policies/request.py",
    "policies/settle.py",
    "policies/verdict.py",
)
#: Nobody outside calls what is inside, so calls need no detour through the linker's tables, and can be inlined.
_DIRECT = [] if sys.platform == "win32" else ["-fvisibility=hidden", "-fno-semantic-interposition"]


class CompiledHook(BuildHookInterface[Any]):
    """Compiles MODULES with mypyc and puts the extension modules beside their sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tell hatchling what was built. Raises whatever mypyc or the compiler raise."""
        if self.target_name != "wheel" or version == "editable":
            return
        built = Path(self.directory) / "compiled"
        _compile(built)
        for extension in sorted(built.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")):
            build_data["force_include"][str(extension)] = str(extension.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _compile(built: Path) -> None:
    from mypyc.build import mypycify  # noqa: PLC0415 - only a compiled build needs them
    from setuptools import Distribution  # noqa: PLC0415 - as above

    options = ["--explicit-package-bases", "--ignore-missing-imports", "--config-file", "pyproject.toml"]
    with TemporaryDirectory() as work:
        extensions = mypycify([*options, *MODULES], opt_level="2", debug_level="0", target_dir=work)
        for extension in extensions:
            extension.extra_compile_args += _DIRECT
        build = Distribution({"name": "evenhand", "ext_modules": extensions}).get_command_obj("build_ext")
        build.build_lib, build.build_temp = str(built), work
        build.ensure_finalized()
        build.run()


if __name__ == "__main__":
    _compile(Path(sys.argv[1]))
