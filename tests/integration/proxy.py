"""A TCP proxy before a learner's ports that resets, holds, slows and spoils what goes through."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from typing import Literal, Self

from vedette_services.net.addresses import Address

Way = Literal["up", "down"]

_CHUNK = 1 << 16
_LATE_S = 0.1  # a slow line makes up for so much of what the machine's load took from it
_PIECE = 1 << 14  # on a slow line, so that no connection has it for long
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
_STOP_S = 5.0


class Proxy:
    """Forwards three ports in a row to a learner, from a thread. As a context, it ends.

    Args:
        listen: its own address, to which managers connect.
        target: the learner's.
        samples_to, models_to: of another learner, to which this port leads instead.
    """

    def __init__(
        self,
        listen: Address,
        target: Address,
        *,
        samples_to: Address | None = None,
        models_to: Address | None = None,
    ) -> None:
        self.listen = listen
        self._targets = (samples_to or target, target, models_to or target)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._up = threading.Event()
        self._open: list[asyncio.Event] = []
        self._free_at = {"up": 0.0, "down": 0.0}  # when the line is free for the next piece
        self._rng = random.Random(1)
        self.bytes_per_s = 0.0
        """What the line carries each way, all ports together; 0: as much as there is."""
        self.flips_per_byte = 0.0
        """How likely a byte on its way up to the samples' port has a bit turned."""
        self.connections = self.resets = self.flips = 0
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(_STOP_S), "the proxy did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    def reset(self) -> None:
        """Reset every connection, on both sides."""
        self._loop.call_soon_threadsafe(self._reset)

    def hold(self, held: bool, port: int | None = None) -> None:
        """Let nothing through, or everything again. Connections stay.

        Args:
            port: of the three, counted from 0; None: all.
        """
        assert self._open, "not started"
        for gate in self._open if port is None else [self._open[port]]:
            self._loop.call_soon_threadsafe(gate.clear if held else gate.set)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._open = [asyncio.Event() for _ in range(3)]
        for gate in self._open:
            gate.set()
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
            except asyncio.CancelledError:
                return  # the end; whoever accepted us would print it if it were raised
            finally:
                self._drop(writer)

        return await asyncio.start_server(connected, self.listen.host, self.listen.port + above)

    async def _join(
        self, above: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far = await asyncio.open_connection(
            self._targets[above].host, self._targets[above].port + above
        )
        self._writers.add(far)
        self.connections += 1
        try:
            await asyncio.gather(
                self._pump(reader, far, above, "up"), self._pump(far_reader, writer, above, "down")
            )
        finally:
            self._drop(far)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, above: int, way: Way
    ) -> None:
        while data := await reader.read(_PIECE if self.bytes_per_s else _CHUNK):
            await self._open[above].wait()
            await self._carry(len(data), way)
            writer.write(self._spoilt(data) if (above, way) == (0, "up") else data)
            await writer.drain()
        raise ConnectionResetError("one side has closed")

    async def _carry(self, size: int, way: Way) -> None:
        """Wait while the line carries so much; pieces of all connections take turns."""
        if self.bytes_per_s:
            now = self._loop.time()
            begin = max(now - _LATE_S, self._free_at[way])
            self._free_at[way] = begin + size / self.bytes_per_s
            await asyncio.sleep(max(0.0, self._free_at[way] - now))

    def _spoilt(self, data: bytes) -> bytes:
        if self._rng.random() >= 1.0 - (1.0 - self.flips_per_byte) ** len(data):
            return data
        self.flips += 1
        spoilt = bytearray(data)
        spoilt[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(spoilt)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    def _reset(self) -> None:
        for writer in list(self._writers):
            end = writer.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._drop(writer)
            self.resets += 1
