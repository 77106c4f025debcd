"""A server as a process: signals, the line that says it is ready, and what its end is called.

SIGTERM, SIGINT   let nobody in, finish what is under way, close; 0
SIGHUP            read the configuration again
the disk failed   end with 70: what is in memory is not to be believed any more
cannot start      one line on stderr; 2 for what the configuration says, else 1
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from mqueue.assembly.reload import Reloader
from mqueue.assembly.security import secrets_of
from mqueue.assembly.server import Serving
from mqueue.config import Config
from mqueue.model.errors import BadSetting, Error, Poisoned
from mqueue.server import logs

OK, FAILED, MISTOLD, POISONED = 0, 1, 2, 70
LOOK_SECONDS = 1.0
RENEW_LOOKS = 30
"""So many looks from one look at what is renewed by itself to the next."""
LOGGER = logging.getLogger("mqueue.server")
_NEW_OBJECTS = 10_000
"""So many more are there before the garbage collector looks at the young ones."""


def serve(config: Config, read: Callable[[], Config] | None = None) -> int:
    """Run a server until it is told to stop; the exit code. `read` gives the configuration anew."""
    logs.set_up(config.logging.level, config.logging.encoding, secrets_of(config))
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            return runner.run(_Process(config, read or (lambda: config)).run())
    except BadSetting as error:
        return _say(error.message, MISTOLD)
    except Poisoned as error:
        return _say(error.message, POISONED)
    except Error as error:
        return _say(error.message, FAILED)
    finally:
        logs.take_down()


class _Process:
    def __init__(self, config: Config, read: Callable[[], Config]) -> None:
        self._serving = Serving(config)
        self._reloader = Reloader(self._serving, read)
        self._woken = asyncio.Event()
        self._stop = self._reload = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload)  # from the start on: it would be the end of us
        await self._serving.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        settle_down()
        with suppress(OSError):  # nobody reads it
            print("ready", *(f"{name}={where}" for name, where in self._serving.addresses.items()), flush=True)
        try:
            poison = await self._watch()
        finally:
            await self._serving.stop()
        return _say(poison, POISONED) if poison else OK

    async def _watch(self) -> str:
        """Until it is told to stop, or cannot go on: why."""
        looks = 0
        while not self._stop:
            poison = self._serving.poison
            if poison:
                return poison
            if self._reload:
                self._reload = False
                await self._reloader.told()
            looks += 1
            if looks % RENEW_LOOKS == 0:
                await self._reloader.run_once()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
        return ""

    def _told_to_stop(self) -> None:
        LOGGER.info("told to stop")
        self._stop = True
        self._woken.set()

    def _told_to_reload(self) -> None:
        self._reload = True
        self._woken.set()


def settle_down() -> None:
    """What is there once a server stands stays until its end: the garbage collector need not go through it again.

    That takes a tenth of a second, and everybody waits meanwhile. Nor need it look at what requests leave behind as
    often as it does by default: they leave hardly a cycle, and it took 6 % of the time of a node.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def _say(sentence: str, code: int) -> int:
    print(f"mqueue: {sentence}", file=sys.stderr, flush=True)
    return code


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
