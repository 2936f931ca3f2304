"""An ASGI application that answers with the path that applications read, in hexadecimal digits."""

import sys

import uvicorn


async def application(scope, _receive, send):
    if scope["type"] != "http":
        return
    body = scope["path"].encode("utf-8", "surrogateescape").hex().encode() + b"\n"
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
