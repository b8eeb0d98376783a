"""`POST /api/reload`: the file is read again; what is wrong with it is the answer, and then nothing has changed.

Where there is no file, or nobody to read it for any more, the answer says that instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.answers import json_answer, problem_answer
from gateway.errors import ConfigError, Fault, ReloadError
from gateway.proxy.problems import BASE

__all__ = ["reload_routes"]

_LOG = logging.getLogger("evenhand.admin")


def reload_routes(reload: Callable[[], tuple[Fault, ...]]) -> list[Route]:
    """Return the route. `reload` returns warnings, or raises ConfigError with every fault, or ReloadError."""

    def endpoint(request: Request) -> Response:
        client = request.client.host if request.client else "unknown"
        _LOG.warning("reload asked for by %s", client)
        try:
            warnings = reload()
        except ReloadError as error:
            return problem_answer(request, 409, detail=str(error))
        except ConfigError as error:
            members = {
                "type": BASE + "configuration-rejected",
                "title": "Configuration not reloaded",
                "status": 409,
                "detail": "The file is wrong: what was in force stays.",
                "errors": [{"path": fault.path, "message": fault.message} for fault in error.faults],
            }
            answer = json_answer(members, 409)
            answer.headers["content-type"] = "application/problem+json"
            return answer
        return json_answer(
            {"reloaded": True, "warnings": [{"path": fault.path, "message": fault.message} for fault in warnings]}
        )

    return [Route("/api/reload", endpoint, methods=["POST"])]
