"""Today's ClickHouse behind the HTTP interface that plimsoll uses: chdb is the engine as a library.

usage: today.py PORT DIRECTORY
"""

import gzip
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from chdb import session

engine = session.Session(os.path.join(sys.argv[2], "data"))
one_at_a_time = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, b"Ok.\n")

    def do_POST(self):
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        try:
            with one_at_a_time:
                answer = self.run(asked, body)
        except Exception as error:
            return self.answer(500, str(error).encode())
        self.answer(200, answer)

    def run(self, asked, body):
        if "database" in asked:
            engine.query("USE " + asked["database"])
        if "query" not in asked:
            return engine.query(body.decode(), "RowBinary").bytes()
        # Rows cannot be in the text of a query.
        with tempfile.NamedTemporaryFile(dir=sys.argv[2]) as rows:
            rows.write(body)
            rows.flush()
            statement, kind = asked["query"].rsplit(" FORMAT ", 1)
            engine.query(f"{statement} FROM INFILE '{rows.name}' FORMAT {kind}")
        return b""

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
