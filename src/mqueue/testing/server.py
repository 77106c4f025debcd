"""A real server for tests: it listens on a free port of this machine, in a thread of its own.

with RunningServer() as server:
    requests.post(f"{server.url}/v1/topics/orders/messages", json={"messages": [{"payload": "1"}]})
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from msgspec.structs import replace

from mqueue.assembly.server import Serving
from mqueue.config import Address, Config, Server
from mqueue.model.clock import Clock

_PATIENCE_SECONDS = 120


class RunningServer:
    """Runs once it is made. `memory` False: messages lie where the configuration says."""

    def __init__(self, config: Config | None = None, clock: Clock | None = None, memory: bool = True) -> None:
        config = config or Config()
        server = replace(config.server, http=Address("127.0.0.1", 0), **_unless_asked_for(config.server))
        self._config = replace(config, server=server, data=replace(config.data, memory=memory))
        self._clock = clock
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stop: Callable[[], object] = _nothing
        self.url = ""
        self.addresses: dict[str, Address] = {}
        self._thread = threading.Thread(target=self._run, name="mqueue-server", daemon=True)
        self._thread.start()
        if not self._started.wait(_PATIENCE_SECONDS):
            raise TimeoutError(f"the server did not start within {_PATIENCE_SECONDS} seconds")
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop it, and wait until it has."""
        with suppress(RuntimeError):  # it ended by itself, and its loop is closed
            self._stop()
        self._thread.join(_PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"the server did not stop within {_PATIENCE_SECONDS} seconds")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop) as runner:
                runner.run(self._serve())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._stop = _nothing
            self._started.set()

    async def _serve(self) -> None:
        serving = Serving(self._config, self._clock)
        scheme = "https" if self._config.security.tls.on else "http"
        self.url = f"{scheme}://{await serving.start()}"
        self.addresses = serving.addresses
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(told.set)
        self._started.set()
        await told.wait()
        await serving.stop()


def _unless_asked_for(server: Server) -> dict[str, None]:
    """The ports of other protocols are the same for all servers by default: only one could have them."""
    listeners = {"grpc": server.grpc, "amqp": server.amqp}
    return {name: None for name, address in listeners.items() if address is not None and not address.asked_for}


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _nothing() -> None:
    """It does not run."""
