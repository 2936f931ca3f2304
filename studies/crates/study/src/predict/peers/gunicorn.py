"""Gunicorn with its defaults, one sync worker among them, and its own access log."""

bind = "{listen}"
accesslog = "access.log"
with open("files/obj/1", "rb") as file:
    BODY = file.read()
FIELDS = [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(BODY)))]


def serve(environ, start_response):
    start_response("200 OK", FIELDS)
    return [BODY]
