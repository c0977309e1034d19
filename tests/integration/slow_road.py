"""A stretch of network that takes its time: forwards TCP, each byte so much later.

python slow_road.py LISTEN TARGET PORT COUNT DELAY_S: COUNT ports from PORT on, from one address to
another.
"""

from __future__ import annotations

import asyncio
import sys

PIECE_BYTES = 64 * 1024
PIECES = 256  # under way in one direction; then whoever sends must wait


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Everything that comes, late, in order; then the end."""
    loop = asyncio.get_running_loop()
    road: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)

    async def arrive() -> None:
        while True:
            due, piece = await road.get()
            await asyncio.sleep(due - loop.time())
            if not piece:
                return
            writer.write(piece)
            await writer.drain()

    arrival = asyncio.create_task(arrive())
    try:
        while piece := await reader.read(PIECE_BYTES):
            await road.put((loop.time() + delay_s, piece))
        await road.put((loop.time() + delay_s, b""))
        await arrival
    except OSError:
        arrival.cancel()
    finally:
        writer.close()


async def forward(listen: str, target: str, port: int, delay_s: float) -> asyncio.Server:
    """Serve one port."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(target, port)
        except OSError:
            writer.close()
            return
        ways = (carry(reader, back, delay_s), carry(there, writer, delay_s))
        await asyncio.gather(*ways, return_exceptions=True)

    return await asyncio.start_server(accepted, listen, port)


async def main() -> None:
    listen, target, port, count, delay_s = sys.argv[1:]
    ports = range(int(port), int(port) + int(count))
    servers = [await forward(listen, target, port, float(delay_s)) for port in ports]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
