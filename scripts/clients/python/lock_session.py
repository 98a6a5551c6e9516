"""The Lock of redis-py: workers that exclude each other, extension, expiry, a worker that dies, a server that dies.

    python lock.py PORT ...
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import time

import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError

from server import kill

PORT = int(sys.argv[1])
WORKERS, ROUNDS = 6, 25


def connect():
    return redis.Redis(port=PORT, decode_responses=True)


def refused(call):
    try:
        call()
    except LockNotOwnedError:
        return
    raise AssertionError("not refused")


def count_alone(number):
    """Read, wait, write: what another did in between would be lost."""
    r = connect()
    for round in range(ROUNDS):
        with r.lock("turn", timeout=20, sleep=0.002):
            assert r.set("inside", number, nx=True), f"worker {r.get('inside')} is inside, too"
            before = int(r.get("count") or 0)
            time.sleep(0.001)
            r.set("count", before + 1)
            assert r.delete("inside") == 1


def exclusion(r):
    workers = [multiprocessing.Process(target=count_alone, args=(n,)) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, f"a worker ended with {worker.exitcode}"
    assert int(r.get("count")) == WORKERS * ROUNDS, f"{r.get('count')} of {WORKERS * ROUNDS} turns were counted"


async def tasks():
    r = redis.asyncio.Redis(port=PORT)
    counted = 0

    async def count():
        nonlocal counted
        for _ in range(10):
            async with r.lock("task", timeout=20, sleep=0.002):
                before = counted
                await asyncio.sleep(0.001)
                counted = before + 1

    await asyncio.gather(*[count() for _ in range(8)])
    assert counted == 80, f"{counted} of 80 turns of tasks were counted"
    await r.aclose()


def times(r):
    first, second = r.lock("timed", timeout=0.4), r.lock("timed", timeout=0.4, sleep=0.005)
    assert first.acquire(blocking=False) and first.owned() and first.locked()
    assert not second.acquire(blocking_timeout=0.1)
    assert first.extend(0.4)
    assert 400 < r.pttl("timed") <= 800
    time.sleep(0.45)
    assert first.owned() and not second.acquire(blocking=False)
    assert first.extend(0.2, replace_ttl=True) and r.pttl("timed") <= 200
    assert first.reacquire() and 200 < r.pttl("timed") <= 400
    assert second.acquire(blocking_timeout=5) and not first.owned()
    refused(first.release)
    refused_extension = r.lock("timed", timeout=1)
    refused_extension.local.token = b"of another"
    refused(lambda: refused_extension.extend(1))
    refused(refused_extension.reacquire)
    assert second.owned()
    second.release()
    assert not r.exists("timed")
    try:
        second.release()
        raise AssertionError("released twice")
    except LockError:
        pass


def dead_worker(r):
    """A worker that is killed keeps its lock until the lock's time is over."""
    ready = multiprocessing.Event()

    def hold():
        connect().lock("held", timeout=0.5).acquire()
        ready.set()
        time.sleep(60)

    worker = multiprocessing.Process(target=hold)
    worker.start()
    assert ready.wait(10)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    heir = r.lock("held", timeout=5, sleep=0.01)
    assert not heir.acquire(blocking=False)
    began = time.monotonic()
    assert heir.acquire(blocking_timeout=5) and time.monotonic() - began > 0.1
    heir.release()


def dead_server(r):
    """A lock outlives the server with what is left of its time, and what was written under it is there."""
    owner, other = r.lock("kept", timeout=30), r.lock("kept", timeout=30)
    assert owner.acquire()
    for n in range(100):
        r.set(f"under:{n}", n)
    left = r.pttl("kept")
    kill(PORT)
    assert not other.acquire(blocking=False), "the lock died with the server"
    assert 0 < r.pttl("kept") <= left
    assert r.mget([f"under:{n}" for n in range(100)]) == [str(n) for n in range(100)]
    assert owner.extend(30) and owner.owned()
    owner.release()
    assert other.acquire(blocking=False)
    other.release()


def main():
    multiprocessing.set_start_method("fork")
    r = connect()
    exclusion(r)
    asyncio.run(tasks())
    times(r)
    dead_worker(r)
    dead_server(r)
    print(f"redis-py {redis.__version__}: its Lock excludes, extends, expires, and outlives the server")


main()
