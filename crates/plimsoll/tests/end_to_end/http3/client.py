"""A client of HTTP/3 by aioquic: client.py PORT STEPS. Takes the steps on one connection, and
prints what each one gave, as JSON."""

import asyncio
import json
import os
import socket
import ssl
import sys
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    ConnectionTerminated,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

PATIENCE_S = 20
# The control stream of the server.
CONTROL = 3


def encoded(fields):
    return [(name.encode(), value.encode()) for name, value in fields]


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3 = H3Connection(self._quic)
        self.heard = False
        self.missed, self.is_mute = 0, False
        self.is_deaf, self.order, self.control, self.at_goodbye = False, [], b"", None
        self.answers, self.ended, self.closed = {}, {}, asyncio.Event()

    def answer(self, stream):
        return self.answers.setdefault(stream, {"fields": {}, "bytes": 0, "sum": 0})

    def transmit(self):
        if not self.is_mute:
            super().transmit()

    def datagram_received(self, data, addr):
        self.heard = True
        if self.is_deaf:
            self.missed += 1
        else:
            super().datagram_received(data, addr)

    def end(self, stream, how):
        self.order.append((stream, {at: answer["bytes"] for at, answer in self.answers.items()}))
        self.answer(stream)["end"] = how
        self.ended.setdefault(stream, asyncio.Event()).set()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.code = event.error_code
            for stream in list(self.ended):
                if not self.ended[stream].is_set():
                    self.end(stream, f"closed {event.error_code:#x}")
            self.closed.set()
        if isinstance(event, StreamReset):
            self.end(event.stream_id, f"reset {event.error_code:#x}")
        if isinstance(event, StopSendingReceived):
            self.answer(event.stream_id)["stopped"] = f"{event.error_code:#x}"
        if isinstance(event, StreamDataReceived) and event.stream_id == CONTROL:
            self.control += event.data
            if self.at_goodbye and self.goodbyes():
                self.at_goodbye()
                self.at_goodbye = None
        for part in self.h3.handle_event(event):
            answer = self.answer(part.stream_id)
            if isinstance(part, HeadersReceived):
                answer["fields"].update({n.decode(): v.decode() for n, v in part.headers})
            if isinstance(part, DataReceived):
                answer["bytes"] += len(part.data)
                answer["sum"] = (answer["sum"] + sum(part.data)) % (1 << 32)
                answer["text"] = part.data[:200].decode(errors="replace")
            if part.stream_ended:
                self.end(part.stream_id, "whole")

    def goodbyes(self):
        """The streams that the server has named in GOAWAY."""
        frames, streams = Buffer(data=self.control), []
        frames.pull_uint_var()
        while not frames.eof():
            kind, payload = frames.pull_uint_var(), frames.pull_bytes(frames.pull_uint_var())
            if kind == 0x7:
                streams.append(Buffer(data=payload).pull_uint_var())
        return streams

    def open(self, head, ends):
        stream = self._quic.get_next_available_stream_id()
        self.ended[stream] = asyncio.Event()
        self.h3.send_headers(stream, encoded(head), end_stream=ends)
        return stream

    def begin(self, method, path, body, fields=(), trailers=None):
        head = [(":method", method), (":scheme", "https"), (":authority", "localhost")]
        stream = self.open([*head, (":path", path), *fields], body is None)
        if body is not None:
            self.h3.send_data(stream, body, end_stream=trailers is None)
        if trailers is not None:
            self.h3.send_headers(stream, encoded(trailers), end_stream=True)
        self.transmit()
        return stream

    def tunnel(self, to, content):
        stream = self.open([(":method", "CONNECT"), (":authority", to)], False)
        self.h3.send_data(stream, content, end_stream=True)
        self.transmit()
        return stream

    async def talk(self, head, said, pause_s):
        stream, heard = self.open(head, False), 0
        for at, text in enumerate(said):
            await asyncio.sleep(pause_s if at > 0 else 0)
            self.h3.send_data(stream, text.encode(), end_stream=False)
            self.transmit()
            heard += len(text)
            await asyncio.wait_for(self.hear(stream, heard), PATIENCE_S)
            if self.ended[stream].is_set():
                return stream
        self.h3.send_data(stream, b"", end_stream=True)
        self.transmit()
        return stream

    async def hear(self, stream, count):
        while self.answer(stream)["bytes"] < count and not self.ended[stream].is_set():
            await asyncio.sleep(0.01)

    def prioritize(self, stream, value):
        payload = encode_uint_var(stream) + value.encode()
        frame = encode_uint_var(0xF0700) + encode_uint_var(len(payload)) + payload
        self._quic.send_stream_data(self.h3._local_control_stream_id, frame)

    async def whole(self, stream):
        await asyncio.wait_for(self.ended[stream].wait(), PATIENCE_S)
        return self.answer(stream)


async def appears(file):
    while not os.path.exists(file):
        await asyncio.sleep(0.01)


async def take(client, step):
    kind = step["do"]
    if kind == "get":
        streams = [
            client.begin(step.get("method", "GET"), step["path"], None, step.get("fields", ()))
            for _ in range(step.get("times", 1))
        ]
        answers = [await client.whole(stream) for stream in streams]
        return answers if "times" in step else answers[0]
    if kind == "begin":
        client.held = client.begin("GET", step["path"], None)
        return client.held
    if kind == "finish":
        return await client.whole(client.held)
    if kind == "post":
        fields = [("content-length", str(step["length"]))] if "length" in step else ()
        body = bytes(at % 251 for at in range(step["bytes"]))
        return await client.whole(client.begin("POST", step["path"], body, fields))
    if kind == "trailers":
        trailers = [("x-end", "1")]
        return await client.whole(client.begin("POST", step["path"], b"hello", (), trailers))
    if kind == "tunnel":
        return await client.whole(client.tunnel(step["to"], bytes(step["bytes"])))
    if kind == "talk":
        # Says the next text when the last one was answered, and then ends.
        talk = client.talk(step["head"], step["say"], step.get("pause_s", 0))
        return await client.whole(await talk)
    if kind == "settings":
        while client.h3.received_settings is None:
            await client.ping()
        return {str(setting): value for setting, value in client.h3.received_settings.items()}
    if kind == "order":
        # Which of these requests ended first, and what had come of each.
        first = client._quic.get_next_available_stream_id()
        for at, value in step.get("before", []):
            client.prioritize(first + 4 * at, value)
        fields = [[("priority", value)] for value in step["priorities"]]
        streams = [client.begin("GET", step["path"], None, field) for field in fields]
        for at, value in step.get("after", []):
            client.prioritize(first + 4 * at, value)
        client.transmit()
        client.order.clear()
        for stream in streams:
            await client.whole(stream)
        return [
            [(stream - first) // 4, [count.get(other, 0) for other in streams]]
            for stream, count in client.order
        ]
    if kind == "prioritize":
        client.prioritize(step["stream"], step["value"])
        client.transmit()
        return None
    if kind == "deaf":
        # Asks, and acknowledges nothing that comes.
        client.begin("GET", step["path"], None)
        client.is_deaf = True
        for at in range(200):
            await asyncio.sleep(0.1)
            client._quic.send_ping(at)
            client.transmit()
        return None
    if kind == "goodbyes":
        # Asks when the first GOAWAY comes.
        def ask():
            client.late = client.begin("GET", step["path"], None)

        client.at_goodbye = ask
        await asyncio.wait_for(client.closed.wait(), PATIENCE_S)
        return [client.goodbyes(), client.answer(client.late), f"{client.code:#x}"]
    if kind == "cancel":
        stream = client.begin("GET", step["path"], None)
        await client.ping()
        client._quic.stop_stream(stream, 0x10C)
        await client.ping()
        return None
    if kind == "flood":
        # Requests that are cancelled at once (rapid reset).
        for _ in range(step["count"]):
            if client.closed.is_set():
                break
            stream = client.begin("GET", step["path"], None)
            client._quic.stop_stream(stream, 0x10C)
            client.transmit()
            await asyncio.sleep(0)
        return None
    if kind == "raw":
        stream = client._quic.get_next_available_stream_id(step.get("uni", False))
        client.ended[stream] = asyncio.Event()
        client._quic.send_stream_data(stream, bytes.fromhex(step["hex"]), step.get("end", False))
        client.transmit()
        return await client.whole(stream)
    if kind == "stop":
        stream = client._quic.get_next_available_stream_id(True)
        client._quic.send_stream_data(stream, bytes.fromhex(step["hex"]), False)
        client.transmit()
        while "stopped" not in client.answer(stream):
            await client.ping()
        return client.answer(stream)["stopped"]
    if kind == "move":
        # From another port, as behind a NAT that has forgotten us.
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: client, local_addr=("::", 0))
        return None
    if kind == "wait":
        await appears(step["file"])
        return None
    if kind == "print":
        print(json.dumps(step["text"]), flush=True)
        return None
    if kind == "closed":
        await asyncio.wait_for(client.closed.wait(), PATIENCE_S)
        return f"{client.code:#x}"
    if kind == "retries":
        return client._quic._retry_count
    raise ValueError(kind)


def configuration():
    return QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)


def silent_clients(port, count):
    """Starts handshakes, and reads no answer. Returns the bytes that were sent and received."""
    sent, received, sockets = 0, 0, []
    for _ in range(count):
        client = QuicConnection(configuration=configuration())
        client.connect(("127.0.0.1", port), time.monotonic())
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        plain.connect(("127.0.0.1", port))
        for datagram, _ in client.datagrams_to_send(time.monotonic()):
            sent += plain.send(datagram)
        sockets.append(plain)
    until = time.monotonic() + 2
    for plain in sockets:
        while (left := until - time.monotonic()) > 0:
            plain.settimeout(left)
            try:
                received += len(plain.recv(65536))
            except TimeoutError:
                break
    return {"sent": sent, "received": received, "sockets": len(sockets)}


async def early(port, requests):
    """Sends requests before the handshake, in the session of an earlier connection."""
    tickets, again = [], configuration()
    async with connect(
        "127.0.0.1",
        port,
        configuration=configuration(),
        create_protocol=Client,
        session_ticket_handler=tickets.append,
    ) as client:
        while not tickets:
            await client.ping()
    again.session_ticket = tickets[0]
    async with connect(
        "127.0.0.1", port, configuration=again, create_protocol=Client, wait_connected=False
    ) as client:
        # The server shall see the requests before the end of the handshake.
        client.is_deaf = True
        streams = [client.begin(method, path, None) for method, path in requests]
        while not client.missed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        client.is_deaf = False
        answers = [await client.whole(stream) for stream in streams]
        return [client._quic.tls.early_data_accepted, answers]


async def mute(port, file, path):
    """Begins a handshake, and continues it when the file appears."""
    async with connect(
        "127.0.0.1",
        port,
        configuration=configuration(),
        create_protocol=Client,
        wait_connected=False,
    ) as client:
        client.transmit()
        client.is_mute = True
        while not client.heard:
            await asyncio.sleep(0.01)
        print(json.dumps("mute"), flush=True)
        await appears(file)
        client.is_mute = False
        client.transmit()
        return await client.whole(client.begin("GET", path, None))


async def main():
    port, steps = int(sys.argv[1]), json.loads(sys.argv[2])
    results = []
    while steps and steps[0]["do"] == "early":
        results.append(await early(port, steps.pop(0)["requests"]))
    while steps and steps[0]["do"] == "silent":
        results.append(silent_clients(port, steps.pop(0)["count"]))
    while steps and steps[0]["do"] == "mute":
        results.append(await mute(port, steps[0]["file"], steps.pop(0)["path"]))
    if steps:
        async with connect(
            "127.0.0.1", port, configuration=configuration(), create_protocol=Client
        ) as client:
            for step in steps:
                results.append(await take(client, step))
    print(json.dumps(results))


asyncio.run(main())
