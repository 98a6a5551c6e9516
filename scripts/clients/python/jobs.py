"""The jobs of rq_session.py. Each notes in the server how often it ran."""

import os
import time

from rq import get_current_job


def note(name):
    return get_current_job().connection.incr(f"ran:{name}")


def add(a, b):
    note(f"add:{a}")
    return a + b


def flaky(name, failures):
    """Fails that often before it succeeds."""
    runs = note(name)
    if runs <= failures:
        raise ValueError(f"{name} fails in run {runs}")
    return runs


def total(count):
    job = get_current_job()
    note("total")
    return sum(dependency.return_value() for dependency in job.fetch_dependencies())


def stuck_once(name):
    """Hangs at first; a second run succeeds."""
    if note(name) == 1:
        get_current_job().connection.set(f"horse:{name}", os.getpid())
        time.sleep(100)
    return "done"
