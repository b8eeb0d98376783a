"""What threads ask of a shared store: a command, many at once, or a script; everything off the data plane.

Rules
1. Whatever goes wrong is one `CallError` with one sentence. The library's exceptions stop here.
2. A command that changes something may have run although no answer came; what is asked of here can be asked again.
3. Names are those of `names.py`; keys of one script share a tag.
4. Nothing connects before it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import AuthenticationError, NoScriptError, RedisError
from redis.exceptions import TimeoutError as StoreTimeoutError

from gateway.config.sections import StoreSection
from gateway.errors import GatewayError
from gateway.stores.link.script import Script
from gateway.stores.link.sync import open_client
from gateway.stores.names import Names

__all__ = ["CallError", "Calls", "Word"]

Word = bytes | str | int | float

#: Commands that go out in one piece; what comes back of more would be held all at once.
_AT_ONCE = 200


class CallError(GatewayError):
    """The store gave no answer, or none that can be used."""


class Calls:
    """The store of a section, for threads. `name` is how it is called in sentences."""

    def __init__(self, section: StoreSection, name: str = "the shared store") -> None:
        self.section = section
        self.names = Names(section.namespace)
        self.name = name
        self._client: Any = None

    def ask(self, *words: Word) -> Any:
        """Return the reply to one command."""
        with self._mapped() as client:
            return client.execute_command(*words)

    def ask_all(self, commands: Iterable[Sequence[Word]]) -> Iterator[Any]:
        """Yield the replies to many commands, in order."""
        waiting = list(commands)
        for start in range(0, len(waiting), _AT_ONCE):
            with self._mapped() as client:
                pipeline = client.pipeline(transaction=False)
                for words in waiting[start : start + _AT_ONCE]:
                    pipeline.execute_command(*words)
                replies = pipeline.execute()
            yield from replies

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Word]) -> Any:
        """Return what a script says; a server that does not know it is told it."""
        with self._mapped() as client:
            try:
                return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return client.execute_command("EVAL", script.source, len(keys), *keys, *args)

    @contextmanager
    def _mapped(self) -> Iterator[Any]:
        try:
            if self._client is None:
                self._client = open_client(self.section)
            yield self._client
        except StoreTimeoutError as error:
            raise CallError(f"{self.name} did not answer in time") from error
        except AuthenticationError as error:  # what a server says of a login may repeat what it was sent
            raise CallError(f"{self.name} refuses our user or password") from error
        except (RedisError, OSError) as error:
            raise CallError(f"{self.name} cannot be used: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return "".join(char for char in lines[0] if char.isprintable())[:200] if lines else type(error).__name__
