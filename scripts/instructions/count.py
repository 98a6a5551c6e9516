#!/usr/bin/env python3
"""Counts the user instructions that one build of the server needs for a command.

    count.py PLUGIN.so PERDURA get|set PIPELINE

The server runs in the emulator qemu-user, 50 clients send pipelines of random commands, and every
instruction of the process counts but those of libc's memset (new log files are zeroed beside the
commands, how many depends on the disk). Prints the instructions a command, then the functions by
their share. The kernel's part is not in it.
"""

import bisect
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CLIENTS, ROUNDS, KEYS, VALUE_BYTES = 50, 20, 20_000, 100


def request(*words):
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def key(number):
    return b"key:%012d" % number


def receive(client, count):
    while count > 0:
        got = client.recv(1 << 16)
        if not got:
            sys.exit("the server has closed the connection")
        count -= len(got)


def connect(port):
    for _ in range(600):
        try:
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(request(b"PING"))
            if client.recv(100) == b"+PONG\r\n":
                return client
            client.close()
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the server does not answer")


def fill(client):
    for first in range(0, KEYS, 500):
        numbers = range(first, first + 500)
        client.sendall(b"".join(request(b"SET", key(n), random.randbytes(VALUE_BYTES)) for n in numbers))
        receive(client, 500 * len(b"+OK\r\n"))


def load(clients, mix, pipeline):
    """Sends the commands that are counted; how many they are."""
    reply = len(b"+OK\r\n") if mix == "set" else len(b"$100\r\n\r\n") + VALUE_BYTES
    for _ in range(ROUNDS):
        for client in clients:
            keys = [key(random.randrange(KEYS)) for _ in range(pipeline)]
            if mix == "set":
                commands = [request(b"SET", k, random.randbytes(VALUE_BYTES)) for k in keys]
            else:
                commands = [request(b"GET", k) for k in keys]
            client.sendall(b"".join(commands))
        for client in clients:
            receive(client, pipeline * reply)
    return ROUNDS * len(clients) * pipeline


def ask(path):
    """Has the plugin do something, and waits until it has."""
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.01)


def mappings(pid):
    """Where files are mapped: begin, end, offset in the file, path."""
    found = []
    for line in open(f"/proc/{pid}/maps"):
        fields = line.split()
        if len(fields) >= 6:
            begin, end = (int(n, 16) for n in fields[0].split("-"))
            found.append((begin, end, int(fields[2], 16), fields[5]))
    return found


def symbols(path):
    listing = subprocess.run(["nm", "-C", "--defined-only", path], capture_output=True, text=True)
    found = []
    for line in listing.stdout.splitlines():
        fields = line.split(" ", 2)
        if len(fields) == 3 and fields[1] in "tTwW":
            found.append((int(fields[0], 16), re.sub(r"::h[0-9a-f]{16}$", "", fields[2])))
    return sorted(found)


def by_function(counts, maps, binary):
    names = symbols(binary)
    starts = [start for start, _ in names]
    base = min(begin for begin, _, _, path in maps if path == binary)
    end = max(end for _, end, _, path in maps if path == binary)
    shares = {}
    for line in open(counts):
        address, count = line.split()
        address, count = int(address, 16), int(count)
        if base <= address < end:
            name = names[bisect.bisect_right(starts, address - base) - 1][1]
        elif is_string_store(address, maps):
            continue
        else:
            name = "(libc)"
        shares[name] = shares.get(name, 0) + count
    return shares


def is_string_store(address, maps):
    """Whether this is a `rep stosb`, which counts once for each byte: a large memset."""
    for begin, end, offset, path in maps:
        if begin <= address < end and os.path.isfile(path):
            with open(path, "rb") as file:
                file.seek(address - begin + offset)
                return file.read(2) == b"\xf3\xaa"
    return False


def main():
    plugin, binary, mix, pipeline = sys.argv[1:5]
    binary, pipeline = os.path.realpath(binary), int(pipeline)
    random.seed(5)
    work = tempfile.mkdtemp()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    emulator = ["qemu-x86_64", "-plugin", f"{os.path.realpath(plugin)},dir={work}"]
    serve = [binary, "serve", "--data", f"{work}/data", "--listen", f"127.0.0.1:{port}"]
    server = subprocess.Popen(emulator + serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        clients = [connect(port) for _ in range(CLIENTS)]
        fill(clients[0])
        time.sleep(2)
        maps = mappings(server.pid)
        ask(f"{work}/mark")
        commands = load(clients, mix, pipeline)
        ask(f"{work}/dump")
        shares = by_function(f"{work}/counts", maps, binary)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(work)
    print(f"{sum(shares.values()) / commands:.0f}")
    for name, count in sorted(shares.items(), key=lambda share: -share[1])[:60]:
        print(f"{count / commands:8.1f} {name}", file=sys.stderr)


main()
