"""Passes connections on: bridge.py SOCKET HOST:PORT takes them on a socket file and leads each to a TCP port, until it is killed."""

import asyncio
import sys
from functools import partial


async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def lead(host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        to_reader, to_writer = await asyncio.open_connection(host, port)
    except OSError as error:
        print(f"bridge: {host}:{port}: {error}", file=sys.stderr, flush=True)
        writer.close()
        return
    await asyncio.gather(pour(reader, to_writer), pour(to_reader, writer))


async def main(path: str, target: str) -> None:
    host, _, port = target.rpartition(":")
    server = await asyncio.start_unix_server(partial(lead, host, int(port)), path)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
