"""What nghttp2 reads as a server, in memory, from connections on stdin.

A connection is its length in four bytes, and its bytes. For each it prints lines of columns: one
for each request that it accepts (stream, whether it is whole, content, then names and values), one
for its trailers, and the frames that it sends, in hexadecimal. Other texts are escaped as Rust's
`escape_ascii` does it.
"""

import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int32, c_size_t
from ctypes import c_ssize_t, c_uint8, c_uint32, c_void_p, string_at

DATA, HEADERS, RST_STREAM = 0, 1, 3
END_STREAM = 1
# SETTINGS_MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE and _MAX_HEADER_LIST_SIZE
SETTINGS = list(zip((3, 4, 6), map(int, sys.argv[1:4])))
# NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
REFUSE_STREAM = -521

NAMED = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
ESCAPED = [NAMED.get(b, chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in range(256)]


def text(data):
    return "".join(ESCAPED[byte] for byte in data)


class Frame(Structure):
    """The frame header, with which each frame begins."""

    _fields_ = [("length", c_size_t), ("stream", c_int32), ("kind", c_uint8), ("flags", c_uint8)]


class Setting(Structure):
    _fields_ = [("id", c_int32), ("value", c_uint32)]


class Request:
    def __init__(self):
        self.is_accepted = self.is_whole = False
        self.fields, self.trailers, self.content = [], [], b""


requests = {}


@CFUNCTYPE(
    c_int, c_void_p, POINTER(Frame), c_void_p, c_size_t, c_void_p, c_size_t, c_uint8, c_void_p
)
def on_header(_session, frame, name, name_len, value, value_len, _flags, _user):
    request = requests.setdefault(frame[0].stream, Request())
    fields = request.trailers if request.is_accepted else request.fields
    fields += [string_at(name, name_len), string_at(value, value_len)]
    return 0


@CFUNCTYPE(
    c_int, c_void_p, POINTER(Frame), c_void_p, c_size_t, c_void_p, c_size_t, c_uint8, c_void_p
)
def on_invalid_header(*_):
    # Otherwise the field is dropped, and the request is accepted.
    return REFUSE_STREAM


@CFUNCTYPE(c_int, c_void_p, POINTER(Frame), c_void_p)
def on_frame(_session, frame, _user):
    stream, kind = frame[0].stream, frame[0].kind
    request = requests.get(stream)
    if request is None:
        return 0
    if kind == HEADERS:
        request.is_accepted = True
    if kind in (DATA, HEADERS) and frame[0].flags & END_STREAM:
        request.is_whole = True
    # A request that was whole could have been answered.
    if kind == RST_STREAM and not request.is_whole:
        del requests[stream]
    return 0


@CFUNCTYPE(c_int, c_void_p, c_uint8, c_int32, c_void_p, c_size_t, c_void_p)
def on_content(_session, _flags, stream, data, length, _user):
    requests[stream].content += string_at(data, length)
    return 0


library = ctypes.CDLL("libnghttp2.so.14")
library.nghttp2_session_mem_recv.restype = c_ssize_t
library.nghttp2_session_mem_recv.argtypes = [c_void_p, c_char_p, c_size_t]
library.nghttp2_session_mem_send.restype = c_ssize_t
callbacks = c_void_p()
library.nghttp2_session_callbacks_new(byref(callbacks))
for name, function in {
    "on_header": on_header,
    "on_invalid_header": on_invalid_header,
    "on_frame_recv": on_frame,
    "on_data_chunk_recv": on_content,
}.items():
    getattr(library, f"nghttp2_session_callbacks_set_{name}_callback")(callbacks, function)


def frames(connection):
    """The frames that answer a connection."""
    session, out = c_void_p(), b""
    library.nghttp2_session_server_new(byref(session), callbacks, None)
    settings = (Setting * len(SETTINGS))(*SETTINGS)
    library.nghttp2_submit_settings(session, 0, settings, len(SETTINGS))
    library.nghttp2_session_mem_recv(session, connection, len(connection))
    data = c_void_p()
    while (length := library.nghttp2_session_mem_send(session, byref(data))) > 0:
        out += string_at(data, length)
    library.nghttp2_session_del(session)
    return out


while length := sys.stdin.buffer.read(4):
    requests.clear()
    sent = frames(sys.stdin.buffer.read(int.from_bytes(length, "big")))
    for stream, request in requests.items():
        if request.is_accepted:
            texts = map(text, [request.content, *request.fields])
            print("request", stream, int(request.is_whole), *texts, sep="\t")
            # Those of a block without an end are not complete.
            trailers = request.trailers if request.is_whole else []
            print("trailers", stream, *map(text, trailers), sep="\t")
    print("frames", sent.hex(), sep="\t")
