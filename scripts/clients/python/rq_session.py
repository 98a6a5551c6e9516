"""RQ with several workers: hundreds of jobs, retries, delays, dependencies, failures, a job that is stopped, a worker
that is killed and whose job another takes over, and a server that is killed when all is queued.

    python rq_session.py PORT ...
"""

import datetime
import os
import signal
import subprocess
import sys
import time

import redis
import rq
from rq.command import send_shutdown_command, send_stop_job_command
from rq.job import JobStatus
from rq.registry import FailedJobRegistry, ScheduledJobRegistry, StartedJobRegistry

import jobs
from server import kill

PORT = int(sys.argv[1])
JOBS = 200


def until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return seen


def work(kind, name):
    """A worker in a process of its own."""
    worker = {"simple": rq.SimpleWorker, "forking": rq.Worker}[kind]
    queues = ["high", "default"] if kind == "simple" else ["forked"]
    worker(queues, name=name, connection=redis.Redis(port=PORT)).work(
        with_scheduler=kind == "simple", logging_level="CRITICAL"
    )


def start(kind, name):
    return subprocess.Popen([sys.executable, __file__, str(PORT), kind, name], start_new_session=True)


def queued(r):
    """Everything is queued; then the server dies, and all of it is still there, in order."""
    default, high = rq.Queue("default", connection=r), rq.Queue("high", connection=r)
    added = default.enqueue_many([rq.Queue.prepare_data(jobs.add, (n, n)) for n in range(JOBS)])
    made = {
        "added": added,
        "total": high.enqueue(jobs.total, JOBS, depends_on=added[:50]),
        "at once": [default.enqueue(jobs.flaky, f"now:{n}", 2, retry=rq.Retry(max=2)) for n in range(10)],
        "later": [default.enqueue(jobs.flaky, f"later:{n}", 1, retry=rq.Retry(max=1, interval=1)) for n in range(5)],
        "delayed": [
            high.enqueue_in(datetime.timedelta(seconds=2), jobs.flaky, f"delayed:{n}", 0) for n in range(5)
        ],
        "failing": [default.enqueue(jobs.flaky, f"failing:{n}", 1) for n in range(3)],
    }
    order, delays = default.job_ids, ScheduledJobRegistry(queue=high)
    assert len(order) == JOBS + 18 and len(delays) == 5
    kill(PORT)
    assert default.job_ids == order and len(delays) == 5
    assert made["total"].get_status() == JobStatus.DEFERRED
    return made


def finished(r, made):
    def all_finished(some, seconds=60):
        until(lambda: all(job.get_status() == JobStatus.FINISHED for job in some), "jobs are finished", seconds)

    all_finished(made["added"] + made["at once"] + made["later"] + made["delayed"] + [made["total"]])
    assert [job.return_value() for job in made["added"]] == [2 * n for n in range(JOBS)]
    assert made["total"].return_value() == sum(2 * n for n in range(50))
    assert {r.get(f"ran:add:{n}") for n in range(JOBS)} == {b"1"}, "a job ran twice"
    assert [job.return_value() for job in made["at once"]] == [3] * 10
    assert [job.return_value() for job in made["later"]] == [2] * 5
    for job in made["delayed"]:
        job.refresh()
        assert job.started_at - job.created_at >= datetime.timedelta(seconds=1)
    failed = FailedJobRegistry("default", connection=r)
    until(lambda: len(failed) == 3, "three jobs have failed")
    for job in made["failing"]:
        assert job.get_status() == JobStatus.FAILED
        assert "fails in run 1" in job.latest_result().exc_string
        failed.requeue(job)
    all_finished(made["failing"])
    assert len(failed) == 0 and len(rq.Queue("default", connection=r)) == 0


def stopped(r):
    """A command over a channel stops a running job."""
    job = rq.Queue("forked", connection=r).enqueue(jobs.stuck_once, "stopped")
    until(lambda: r.get("horse:stopped"), "the job runs")
    send_stop_job_command(r, job.id)
    until(lambda: job.get_status() == JobStatus.STOPPED, "the job is stopped")


def taken_over(r, worker):
    """The worker and its process for the job are killed; another takes the job over when the time has come."""
    queue = rq.Queue("forked", connection=r)
    job = queue.enqueue(jobs.stuck_once, "orphan", retry=rq.Retry(max=1))
    horse = int(until(lambda: r.get("horse:orphan"), "the job runs"))
    os.kill(worker.pid, signal.SIGKILL)
    os.kill(horse, signal.SIGKILL)
    worker.wait()
    started = StartedJobRegistry("forked", connection=r)
    until(lambda: job in started, "the job is said to run")
    assert job.get_status() == JobStatus.STARTED
    heir = start("forking", "heir")
    # The worker's last heartbeat counts for 90 seconds; the registry is asked what it will see then.
    started.cleanup(timestamp=time.time() + 200)
    until(lambda: job.get_status() == JobStatus.FINISHED, "the job is taken over")
    assert job.return_value() == "done" and r.get("ran:orphan") == b"2" and job not in started
    return heir


def main():
    r = redis.Redis(port=PORT)
    made = queued(r)
    workers = {name: start("simple", name) for name in ("one", "two")}
    workers["three"] = start("forking", "three")
    try:
        finished(r, made)
        stopped(r)
        workers["heir"] = taken_over(r, workers.pop("three"))
        for name, worker in workers.items():
            send_shutdown_command(r, name)
        for name, worker in workers.items():
            assert worker.wait(20) == 0, f"worker {name} ended with {worker.returncode}"
        assert [worker.name for worker in rq.Worker.all(connection=r)] in ([], ["three"])
    finally:
        for worker in workers.values():
            worker.kill()
    print(f"RQ {rq.__version__}: {JOBS} jobs, retries, delays, a worker and a server killed, no job lost or run twice")


if len(sys.argv) > 3 and sys.argv[2] in ("simple", "forking"):
    work(*sys.argv[2:4])
else:
    main()
