"""Python's asyncio with a small HTTP/1.1 server: one file, and a combined access log."""

import asyncio
import time

with open("files/obj/1", "rb") as file:
    BODY = file.read()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
RESPONSE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LOG = open("access.log", "w", buffering=1)
LINE = '%s - - [%s] "%s" 200 %d "-" "%s"\n'


async def serve(reader, writer):
    client = writer.get_extra_info("peername")[0]
    fields = {}
    try:
        while fields.get("connection") != "close":
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = dict(field.lower().split(": ", 1) for field in head[1:-2])
            writer.write(RESPONSE)
            await writer.drain()
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z")
            LOG.write(LINE % (client, stamp, head[0], len(BODY), fields.get("user-agent", "-")))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # The client closed the connection.
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "{host}", "{port}", backlog=512)
    await server.serve_forever()


asyncio.run(main())
