"""A TCP proxy before a learner's three ports that can reset and hold what goes through it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from vedette_services.addresses import Address

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
_STOP_S = 5.0


class Proxy:
    """Forwards three ports in a row to a learner, from a thread. As a context, it ends.

    Args:
        listen: its own address, to which managers connect.
        target: the learner's.
    """

    def __init__(self, listen: Address, target: Address) -> None:
        self.listen, self._target = listen, target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._up = threading.Event()
        self._open: asyncio.Event | None = None
        self.connections = self.resets = 0
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(_STOP_S), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    def reset(self) -> None:
        """Reset every connection, on both sides."""
        self._loop.call_soon_threadsafe(self._reset)

    def hold(self, held: bool) -> None:
        """Let nothing through, or everything again. Connections stay."""
        assert self._open is not None, "not started"
        change = self._open.clear if held else self._open.set
        self._loop.call_soon_threadsafe(change)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._open = asyncio.Event()
        self._open.set()
        servers = [self._loop.run_until_complete(self._server(above)) for above in range(3)]
        self._up.set()
        self._loop.run_forever()
        for server in servers:
            server.close()
        self._reset()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _server(self, above: int) -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            try:
                await self._join(above, reader, writer)
            except OSError:
                return  # the learner is down, or one side has reset: so has the other, below
            finally:
                self._drop(writer)

        return await asyncio.start_server(connected, self.listen.host, self.listen.port + above)

    async def _join(
        self, above: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far = await asyncio.open_connection(
            self._target.host, self._target.port + above
        )
        self._writers.add(far)
        self.connections += 1
        try:
            await asyncio.gather(self._pump(reader, far), self._pump(far_reader, writer))
        finally:
            self._drop(far)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._open is not None, "not started"
        while data := await reader.read(_CHUNK):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side has closed")

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    def _reset(self) -> None:
        for writer in list(self._writers):
            end = writer.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._drop(writer)
            self.resets += 1
