#!/usr/bin/env python3
"""Measures how long servers take from their start to the first byte of a response, and their sizes.

    tools/bench/start_up.py PLIMSOLL [ROUNDS]

PLIMSOLL is the program to measure. Each server is a reverse proxy with one worker in front of a
small origin. In each round every server is started once, so that a disturbance of the machine
meets all of them. A server that is not installed is named and left out. The time includes the fork
of the process; a connection is tried every half millisecond.
"""

import glob
import http.server
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

LIMIT_S = 20
NGINX = """daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log;
events {{}} http {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p;
fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
proxy_cache_path {dir}/c keys_zone=z:10m;
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{origin}; proxy_cache z; }} }} }}
"""
HAPROXY = """global
  nbthread 1
defaults
  mode http
  timeout client 10s
  timeout server 10s
  timeout connect 10s
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server o {origin}
"""
VARNISH = """vcl 4.1;
backend b {{ .host = "{host}"; .port = "{origin_port}"; }}
"""
SQUID = """http_port 127.0.0.1:{port} accel defaultsite=a
cache_peer {host} parent {origin_port} 0 no-query originserver
http_access allow all
pid_filename none
cache_log {dir}/squid.log
access_log none
cache_effective_user proxy
cache_mem 64 MB
shutdown_lifetime 0 seconds
"""
# name: packages of Debian, configuration, command
PEERS = {
    "HAProxy": (["haproxy"], HAPROXY, ["haproxy", "-db", "-f", "{conf}"]),
    "nginx": (
        ["nginx", "nginx-common"],
        NGINX,
        ["nginx", "-e", "{dir}/nginx.log", "-c", "{conf}"],
    ),
    "Varnish": (
        ["varnish", "libvarnishapi3"],
        VARNISH,
        ["varnishd", "-F", "-n", "{dir}/v", "-a", "127.0.0.1:{port}", "-f", "{conf}"],
    ),
    "Squid": (["squid", "squid-common"], SQUID, ["squid", "-N", "-n", "{service}", "-f", "{conf}"]),
}


def program(name):
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return shutil.which(name, path=path)


class Origin(http.server.BaseHTTPRequestHandler):
    """Answers each GET with a kilobyte."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1024")
        self.end_headers()
        self.wfile.write(b"x" * 1024)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def first_byte(port, until):
    """Waits for the first byte of a response, and returns its status line."""
    request = b"GET /obj/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                client.sendall(request)
                if answer := client.recv(64):
                    return answer.split(b"\r\n")[0]
        except OSError:
            pass
        time.sleep(0.0005)
    raise SystemExit(f"no answer from port {port} within {LIMIT_S} s")


def remove_shared_memory(command):
    """A killed Squid leaves the segments of its service behind."""
    if "squid" in command[0]:
        service = command[command.index("-n") + 1]
        for segment in glob.glob(f"/dev/shm/{service}-*"):
            os.remove(segment)


def measured(command, port, output):
    begin = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        status = first_byte(port, begin + LIMIT_S)
        took = time.monotonic() - begin
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        remove_shared_memory(command)
    if b" 200" not in status:
        raise SystemExit(f"{command[0]} answered {status!r}")
    return took * 1000


def commands(directory, ours, origin):
    """For each server: its name, and a function from a port to its command."""
    host, origin_port = origin.split(":")

    def of_peer(name, port):
        _, text, command = PEERS[name]
        own = tempfile.mkdtemp(dir=directory)
        os.chmod(own, 0o777)
        conf = os.path.join(own, "conf")
        service = f"startup{os.getpid()}p{port}"
        names = dict(
            dir=own, port=port, origin=origin, host=host, origin_port=origin_port, service=service
        )
        with open(conf, "w") as file:
            file.write(text.format(**names))
        words = [word.format(conf=conf, **names) for word in command]
        return [program(words[0]), *words[1:]]

    def of_plimsoll(port):
        listen = f"127.0.0.1:{port}"
        return [ours, "serve", "--workers", "1", "--listen", listen, "--origin", "http://" + origin]

    yield "plimsoll", of_plimsoll
    for name, (_, _, command) in PEERS.items():
        if program(command[0]):
            yield name, lambda port, name=name: of_peer(name, port)
        else:
            print(f"{name} is not installed", file=sys.stderr)


def sizes(name, ours):
    """Bytes of the program, and KiB of its packages."""
    if name == "plimsoll":
        return os.path.getsize(ours), None
    packages, _, command = PEERS[name]
    ask = ["dpkg-query", "--show", "--showformat", "${Installed-Size}\n", *packages]
    installed = subprocess.run(ask, capture_output=True, text=True).stdout.split()
    return os.path.getsize(os.path.realpath(program(command[0]))), sum(map(int, installed))


def main(ours, rounds=15):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as directory, open(os.devnull, "w") as output:
        os.chmod(directory, 0o755)
        servers = list(commands(directory, ours, origin))
        times = {name: [] for name, _ in servers}
        for _ in range(int(rounds)):
            for name, command in servers:
                port = free_port()
                times[name].append(measured(command(port), port, output))
    print("| server | start to first byte, median (least to most) | program | its packages |")
    print("| --- | --- | --- | --- |")
    for name, took in times.items():
        binary, packages = sizes(name, ours)
        middle = f"{statistics.median(took):.0f} ms ({min(took):.0f} to {max(took):.0f})"
        packages = f"{packages / 1024:.1f} MiB" if packages else ""
        print(f"| {name} | {middle} | {binary / 2**20:.1f} MiB | {packages} |")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
