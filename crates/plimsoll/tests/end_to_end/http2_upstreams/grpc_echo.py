"""A gRPC server, and a client that checks what it gets: grpc_echo.py (serve | call PORT).

Messages are plain bytes, so that no schema is needed.
"""
import sys
import threading
from concurrent import futures

import grpc


def unary(request, context):
    metadata = dict(context.invocation_metadata())
    context.set_trailing_metadata((("x-count", str(len(request))), ("x-asked", metadata["x-ask"])))
    return request


def stream(requests, context):
    # Each message is answered before the next one is read.
    for request in requests:
        yield b"re: " + request
    context.set_trailing_metadata((("x-done", "yes"),))


def many(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def gather(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def refuse(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: 100% \u00e9")


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
        "Many": grpc.unary_stream_rpc_method_handler(many),
        "Gather": grpc.stream_unary_rpc_method_handler(gather),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def call(port):
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", (("grpc.enable_http_proxy", 0),))
    echo, call = channel.unary_unary("/test.Echo/Unary").with_call(
        b"hello", metadata=(("x-ask", "42"),), timeout=20
    )
    assert echo == b"hello", echo
    trailers = dict(call.trailing_metadata())
    assert trailers["x-count"] == "5" and trailers["x-asked"] == "42", trailers

    # The next message is sent only after the answer to the last one has come.
    answers = threading.Semaphore(1)

    def messages():
        for number in range(50):
            assert answers.acquire(timeout=20)
            yield b"%d" % number

    got = []
    stream = channel.stream_stream("/test.Echo/Stream")(messages(), timeout=60)
    for answer in stream:
        got.append(answer)
        answers.release()
    assert got == [b"re: %d" % number for number in range(50)], got
    assert dict(stream.trailing_metadata())["x-done"] == "yes"

    numbers = list(channel.unary_stream("/test.Echo/Many")(b"2000", timeout=60))
    assert numbers == [b"%d" % number for number in range(2000)]
    pieces = (b"x" * 60_000 for _ in range(50))
    total = channel.stream_unary("/test.Echo/Gather")(pieces, timeout=60)
    assert total == b"3000000", total

    try:
        channel.unary_unary("/test.Echo/Refuse")(b"", timeout=20)
        raise AssertionError("it was not refused")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert error.details() == "not today: 100% \u00e9", error
    try:
        channel.unary_unary("/test.Echo/Missing")(b"", timeout=20)
        raise AssertionError("it exists")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
    print("ok")


serve() if sys.argv[1] == "serve" else call(int(sys.argv[2]))
