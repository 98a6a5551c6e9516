"""The Redlock of pottery over three servers: workers that exclude each other while one of the servers is killed,
extension, expiry. And its ids, which three servers agree on.

    python pottery_session.py PORT PORT PORT
"""

import logging
import pathlib
import sys
import threading
import time

import redis
from pottery import ExtendUnlockedLock, NextID, Redlock, ReleaseUnlockedLock

sys.path.append(str(pathlib.Path(__file__).parent.parent / "python"))
from server import kill

PORTS = [int(port) for port in sys.argv[1:4]]
WORKERS, ROUNDS = 5, 20


def masters():
    return {redis.Redis(port=port) for port in PORTS}


def refused(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError("not refused")


def exclusion():
    data = redis.Redis(port=PORTS[0])
    turns, errors = [], []

    def worker():
        try:
            lock = Redlock(key="turn", masters=masters(), auto_release_time=2)
            for _ in range(ROUNDS):
                lock.acquire()
                assert data.set("inside", "x", nx=True), "two workers are inside"
                before = int(data.get("count") or 0)
                time.sleep(0.001)
                data.set("count", before + 1)
                assert data.delete("inside") == 1
                lock.release()
                turns.append(before)
                if len(turns) == 30:
                    kill(PORTS[1])
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert int(data.get("count")) == WORKERS * ROUNDS and sorted(turns) == list(range(WORKERS * ROUNDS))


def times():
    first = Redlock(key="timed", masters=masters(), auto_release_time=0.5)
    second = Redlock(key="timed", masters=masters(), auto_release_time=5)
    assert first.acquire() and 0 < first.locked() <= 0.5
    for _ in range(2):
        time.sleep(0.3)
        assert not second.acquire(blocking=False), "the lock is there twice"
        first.extend()
    began = time.monotonic()
    assert second.acquire() and time.monotonic() - began > 0.3
    assert first.locked() == 0
    refused(first.extend, ExtendUnlockedLock)
    refused(first.release, ReleaseUnlockedLock)
    assert second.locked() > 0
    second.release()
    assert second.locked() == 0


def ids():
    drawn = []

    def draw():
        some = NextID(key="ids", masters=masters(), num_tries=50)
        drawn.extend(next(some) for _ in range(20))

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 60 == len(set(drawn)), "an id was drawn twice"


def main():
    logging.getLogger("pottery").setLevel(logging.CRITICAL)
    exclusion()
    times()
    ids()
    print("pottery: its Redlock excludes while one of three servers dies, extends, expires; its ids are drawn once")


main()
