"""A relay of connections that can delay every byte: `tc netem` is not in every kernel."""

import asyncio
import contextlib
import threading

__all__ = ["SlowRelay"]

CHUNK = 1 << 16


class SlowRelay:
    """Passes connections from one address on to another, each byte as late as `seconds` says.

    Bytes keep their order, and nothing is lost: a delayed network, not a broken one.

    Parameters
    ----------
    here, there : str
        The address where it listens, and the one that it connects to, at the same port.
    """

    def __init__(self, here: str, there: str) -> None:
        self._here, self._there, self.seconds = here, there, 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, port: int) -> None:
        """Listen at a port from now on."""
        listening = asyncio.start_server(
            lambda reader, writer: self._pass(reader, writer, port), self._here, port
        )
        asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        """Connect both ways until one side ends."""
        ends = [writer]
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(self._there, port)
            ends.append(far_writer)
            ways = [self._carry(reader, far_writer), self._carry(far_reader, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        for one in ends:
            one.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way; what is under way does not keep the next from setting out."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def arrive() -> None:
            while True:
                due, content = await under_way.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not content:
                    return
                writer.write(content)
                await writer.drain()

        arriving = asyncio.ensure_future(arrive())
        try:
            with contextlib.suppress(OSError):
                while content := await reader.read(CHUNK):
                    await under_way.put((self._loop.time() + self.seconds, content))
                await under_way.put((self._loop.time() + self.seconds, b""))
                await arriving
        finally:
            arriving.cancel()

    def close(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
