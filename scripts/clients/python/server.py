"""The server at a port, and its death."""

import os
import signal
import time

import redis


def kill(port):
    """Kills the server as a power cut would, and waits until the one that is started in its place answers."""
    client = redis.Redis(port=port)
    dead = client.info("server")["process_id"]
    os.kill(dead, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        try:
            if client.ping() and client.info("server")["process_id"] != dead:
                return
        except redis.ConnectionError:
            pass
        assert time.monotonic() < deadline, "the server did not come back"
        time.sleep(0.02)
