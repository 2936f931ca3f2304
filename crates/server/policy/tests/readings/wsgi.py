"""A WSGI server that answers with the paths that applications read, in hexadecimal digits."""

import posixpath
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def application(environ, start):
    path = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
    paths = [path, posixpath.normpath(path)]
    body = "".join(path.encode("latin-1").hex() + "\n" for path in paths).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


make_server("127.0.0.1", int(sys.argv[1]), application, handler_class=Quiet).serve_forever()
