"""`evenhand` under a hard limit of few open files: `python -m tests.wire.limited serve ...`."""

from __future__ import annotations

import resource

from gateway.__main__ import main

__all__ = ["FILES"]

FILES = 300

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    main()
