"""A server of HTTP/3 by aioquic: server.py PORT CHAIN KEY. Answers each request with 1000 bytes."""

import asyncio
import sys

from aioquic.asyncio import serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated


class Server(QuicConnectionProtocol):
    h3 = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.h3 = H3Connection(self._quic)
        if self.h3 is None:
            return
        for part in self.h3.handle_event(event):
            if isinstance(part, HeadersReceived):
                assert (b":method", b"GET") in part.headers
                head = [(b":status", b"200"), (b"content-length", b"1000"), (b"age", b"7")]
                self.h3.send_headers(part.stream_id, head)
                self.h3.send_data(part.stream_id, bytes(1000), end_stream=True)
        self.transmit()


async def main():
    port, chain, key = sys.argv[1:]
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(chain, key)
    await serve("127.0.0.1", int(port), configuration=configuration, create_protocol=Server)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
