#!/usr/bin/env python3
"""Counts the user instructions that one build of the server needs for a command, by phase and by function.

    count.py PLUGIN.so PERDURA COMMAND PIPELINE [LOOPS]

The server runs in the emulator qemu-user, and 50 clients send pipelines of one command. The server stands still while
they send, so that a round of its loop meets all of them. Only the threads of the loops count, without libc's memset,
which zeroes new files of the log. The kernel's part is not in it. Without LOOPS, the server need not know the setting.

Prints the instructions of one request: of each phase in phases.txt, in the file's order, and then their sum. The
functions go to stderr, each with its phase. A function that the compiler has put into its caller counts for the caller.
"""

import bisect
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from commands import COMMANDS, KEYS, encode

CLIENTS, ROUNDS = 50, 20
PHASES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "phases.txt")


def receive(client, count):
    """Receives replies. A bulk reply has two lines, and any other has one."""
    rest = b""
    while count > 0:
        got = client.recv(1 << 16)
        if not got:
            sys.exit("the server has closed the connection")
        *lines, rest = (rest + got).split(b"\n")
        for line in lines:
            if line[:1] == b"-" or line[:2] == b"$-":
                sys.exit(f"the server has replied {line.decode()}")
            count -= line[:1] != b"$"


def connect(port):
    for _ in range(600):
        try:
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(encode(b"PING"))
            if client.recv(100) == b"+PONG\r\n":
                return client
            client.close()
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the server does not answer")


def fill(client, requests):
    for first in range(0, len(requests), 500):
        few = requests[first : first + 500]
        client.sendall(b"".join(few))
        receive(client, len(few))


def load(server, clients, request, pipeline):
    """Sends the commands that are counted. Returns their number."""
    sent = 0
    for _ in range(ROUNDS):
        server.send_signal(signal.SIGSTOP)
        for client in clients:
            client.sendall(b"".join(request(KEYS + sent + n) for n in range(pipeline)))
            sent += pipeline
        server.send_signal(signal.SIGCONT)
        for client in clients:
            receive(client, pipeline)
    return sent


def ask(path):
    """Has the plugin do something, and waits until it has."""
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.01)


def mappings(pid):
    """Returns where files are mapped: begin, end, offset in the file, path."""
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
    """Returns whether this is a `rep stosb`, which counts once for each byte: a large memset."""
    for begin, end, offset, path in maps:
        if begin <= address < end and os.path.isfile(path):
            with open(path, "rb") as file:
                file.seek(address - begin + offset)
                return file.read(2) == b"\xf3\xaa"
    return False


def read_phases():
    """Returns the phases in their order, each with the pattern of its functions."""
    phases = {}
    for line in open(PHASES):
        if line.strip() and not line.startswith("#"):
            phase, pattern = line.split(maxsplit=1)
            phases.setdefault(phase, []).append(pattern.strip())
    return {phase: re.compile("|".join(patterns)) for phase, patterns in phases.items()}


def count(plugin, binary, command, pipeline, loops):
    """Returns the instructions of one request by function."""
    requests, request = COMMANDS[command]
    random.seed(5)
    work = tempfile.mkdtemp()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    emulator = ["qemu-x86_64", "-plugin", f"{os.path.realpath(plugin)},dir={work},loops={loops or 1}"]
    serve = [binary, "serve", "--data", f"{work}/data", "--listen", f"127.0.0.1:{port}"]
    serve += ["--loops", str(loops)] if loops else []
    server = subprocess.Popen(emulator + serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        clients = [connect(port) for _ in range(CLIENTS)]
        fill(clients[0], requests())
        time.sleep(2)
        maps = mappings(server.pid)
        ask(f"{work}/mark")
        sent = load(server, clients, request, pipeline)
        ask(f"{work}/dump")
        shares = by_function(f"{work}/counts", maps, binary)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(work)
    return {name: share / sent for name, share in shares.items()}


def main():
    plugin, binary, command, pipeline = sys.argv[1:5]
    loops = int(sys.argv[5]) if len(sys.argv) > 5 else None
    shares = count(plugin, os.path.realpath(binary), command, int(pipeline), loops)
    phases = read_phases()
    sums = dict.fromkeys(phases, 0)
    for name, share in sorted(shares.items(), key=lambda share: -share[1]):
        phase = next(phase for phase, pattern in phases.items() if pattern.search(name))
        sums[phase] += share
        if share >= 1:
            print(f"{share:8.1f} {phase:8} {name}", file=sys.stderr)
    print(*(f"{share:.0f}" for share in sums.values()), f"{sum(sums.values()):.0f}")


main()
