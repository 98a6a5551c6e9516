#!/usr/bin/env python3
"""Clients of several event loops: the latency beside long scripts, and very many clients.

    scripts/bench-loops-clients.py scripts     latency of one loop's clients while another loop runs scripts of 50 ms
    scripts/bench-loops-clients.py many        10,000 clients of four loops
    PERDURA=path/to/perdura ROUNDS=5 SECONDS_EACH=3 RATE=2000 KEYS=100000 CLIENTS=10000 scripts/bench-loops-clients.py many

`scripts` compares three kinds of rounds, which take turns: nothing else, scripts on the other loop, and a process that
only uses a processor. The third shows what the scripts' processor time alone costs on a machine with few processors.
With KEYS=1 no request needs the partition of the scripts' key.
"""

import os
import pathlib
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
PERDURA = os.environ.get("PERDURA", str(HERE / "target/release/perdura"))
ROUNDS = int(os.environ.get("ROUNDS", 5))
SECONDS = float(os.environ.get("SECONDS_EACH", 3))
RATE = int(os.environ.get("RATE", 2000))
KEYS = int(os.environ.get("KEYS", 100_000))
CLIENTS = int(os.environ.get("CLIENTS", 10_000))
SCRIPT_MS = 50
VALUE = b"v" * 100


def encode(*words):
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def ask(client, *words):
    """Sends a request and returns its reply, which ends with a line."""
    client.sendall(encode(*words))
    reply = b""
    while not reply.endswith(b"\r\n"):
        got = client.recv(1 << 16)
        if not got:
            sys.exit("the server has closed the connection")
        reply += got
    return reply


def call(client, *words):
    """Sends a request and returns its reply, unless that is an error."""
    reply = ask(client, *words)
    if reply[:1] == b"-":
        sys.exit(f"the server has replied {reply.decode()}")
    return reply


class Server:
    """A server of several loops on a fresh directory."""

    def __init__(self, loops):
        self.work = tempfile.mkdtemp(dir=HERE / "target")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        serve = [PERDURA, "serve", "--data", f"{self.work}/data", "--listen", f"127.0.0.1:{self.port}"]
        serve += ["--loops", str(loops)]
        self.process = subprocess.Popen(serve, stderr=subprocess.DEVNULL)
        self.loops = loops
        self.control = self.connect()
        while ask(self.control, b"PING") != b"+PONG\r\n":
            time.sleep(0.01)

    def connect(self):
        for _ in range(1000):
            try:
                client = socket.create_connection(("127.0.0.1", self.port))
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return client
            except OSError:
                time.sleep(0.01)
        sys.exit("the server does not answer")

    def clients_of_loops(self):
        """Returns the number of clients of each loop."""
        lines = call(self.control, b"INFO", b"loops").decode().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return [int(fields[f"loop_{at}_clients"]) for at in range(self.loops)]

    def seat(self):
        """Returns a new client, and the index of its loop."""
        before = self.clients_of_loops()
        client = self.connect()
        call(client, b"PING")
        after = self.clients_of_loops()
        return client, next(at for at in range(self.loops) if after[at] != before[at])

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.work)


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def paced(clients, seconds):
    """Sends SETs at RATE a second in all, each client one at a time. Returns the latencies in microseconds."""
    poll = selectors.DefaultSelector()
    idle, sent, took, requests = list(clients), {}, [], 0
    for client in clients:
        poll.register(client, selectors.EVENT_READ)
    begin = due = time.perf_counter()
    while time.perf_counter() < begin + seconds or sent:
        now = time.perf_counter()
        while idle and due <= now and now < begin + seconds:
            client = idle.pop(0)
            sent[client] = time.perf_counter()
            client.sendall(encode(b"SET", b"short:%d" % (requests % KEYS), VALUE))
            requests += 1
            due += 1 / RATE
        for key, _ in poll.select(max(0, min(due - now, 0.001))):
            reply = key.fileobj.recv(100)
            if reply != b"+OK\r\n":
                sys.exit(f"the server has replied {reply!r}")
            took.append((time.perf_counter() - sent.pop(key.fileobj)) * 1e6)
            idle.append(key.fileobj)
    return took


def run_scripts(client, script, ended, ran):
    """Runs scripts one after the other, and counts them."""
    while not ended.is_set():
        begin = time.perf_counter()
        call(client, b"EVAL", script, b"1", b"long")
        ran.append(time.perf_counter() - begin)


def scripts():
    server = Server(2)
    try:
        long, its_loop = server.seat()
        # Clients of the scripts' loop stay connected, so that the next client gets a place on the other loop.
        seats = [server.seat() for _ in range(16)]
        short = [client for client, loop in seats if loop != its_loop]
        text = "redis.call('SET', KEYS[1], 'x') local n = 0 while n < %d do n = n + 1 end return n"
        begin = time.perf_counter()
        call(long, b"EVAL", (text % 5_000_000).encode(), b"1", b"long")
        turns = int(5_000_000 * SCRIPT_MS / 1000 / (time.perf_counter() - begin))
        script = (text % turns).encode()
        found = {"quiet": [], "scripts": [], "burner": []}
        for _ in range(ROUNDS):
            for kind, rounds in found.items():
                ended, ran, helper, burner = threading.Event(), [], None, None
                if kind == "scripts":
                    helper = threading.Thread(target=run_scripts, args=(long, script, ended, ran))
                    helper.start()
                if kind == "burner":
                    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                    time.sleep(0.1)
                took = paced(short, SECONDS)
                ended.set()
                if helper:
                    helper.join()
                    print(f"{len(ran)} scripts of {statistics.median(ran) * 1000:.0f} ms", flush=True)
                if burner:
                    burner.kill()
                    burner.wait()
                rounds.append([percentile(took, p) for p in (50, 99, 100)])
        for kind, rounds in found.items():
            p50, p99, most = (statistics.median(of) for of in zip(*rounds))
            ratio = statistics.median(one[1] / quiet[1] for one, quiet in zip(rounds, found["quiet"]))
            print(f"{kind:8} p50 {p50:.0f} us, p99 {p99:.0f} us, most {most:.0f} us, p99 / quiet {ratio:.2f}")
    finally:
        server.close()


def many():
    server = Server(4)
    try:
        begin = time.perf_counter()
        clients = [server.connect() for _ in range(CLIENTS - 1)]
        for client in clients:
            call(client, b"PING")
        print(f"{CLIENTS} clients connected in {time.perf_counter() - begin:.1f} s")
        print("clients of the loops:", *server.clients_of_loops())
        poll = selectors.DefaultSelector()
        for client in clients:
            poll.register(client, selectors.EVENT_READ)
        for _ in range(ROUNDS):
            took, begin = [], time.perf_counter()
            for at, client in enumerate(clients):
                client.sendall(encode(b"SET", b"many:%d" % at, VALUE))
            while len(took) < len(clients):
                for key, _ in poll.select():
                    if key.fileobj.recv(100) != b"+OK\r\n":
                        sys.exit("a SET was refused")
                    took.append(time.perf_counter() - begin)
            print(f"one SET of each client: {max(took):.2f} s, {len(took) / max(took):.0f} a second", flush=True)
        keys = call(server.control, b"DBSIZE").decode().strip()
        if keys != f":{CLIENTS - 1}":
            sys.exit(f"the database has {keys} keys")
        resident = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        print(next(line for line in resident.splitlines() if line.startswith("VmRSS")))
    finally:
        server.close()


MODES = {"scripts": scripts, "many": many}
if len(sys.argv) != 2 or sys.argv[1] not in MODES:
    sys.exit(__doc__)
MODES[sys.argv[1]]()
