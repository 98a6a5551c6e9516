// BullMQ with several workers: hundreds of jobs over a server that is killed in between, retries, delays, priorities,
// a flow of parent and children, a rate limit, a schedule, a worker that is killed and whose job another takes over,
// and the events of all that, which are a stream.
//
//   node bullmq_session.mjs PORT ...
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";
import { connect, kill, until } from "./server.mjs";

const port = Number(process.argv[2]);
const connection = { port, maxRetriesPerRequest: null, retryStrategy: () => 50 };
const JOBS = 400;
const notes = connect(port);
const closing = [];

function open(thing) {
    thing.on("error", () => {}); // The server goes away for a while.
    closing.push(thing);
    return thing;
}
const queue = (name, options = {}) => open(new Queue(name, { connection, ...options }));
const worker = (name, process, options = {}) => open(new Worker(name, process, { connection, ...options }));

// Notes that the job ran, and how often it now has.
const ran = (job) => notes.incr(`ran:${job.queueName}:${job.id}`);

// Fails as often as the job's data say, then returns what it got.
async function flaky(job) {
    const runs = await ran(job);
    if (runs <= (job.data.failures ?? 0)) throw new Error(`fails in run ${runs}`);
    return job.data.value;
}

async function counts(of, state) {
    return (await of.getJobCounts(state))[state];
}

// Everything is done once, although the server dies amid of it, and every event is told once.
async function bulk() {
    const jobs = queue("bulk");
    const events = open(new QueueEvents("bulk", { connection }));
    await events.waitUntilReady();
    const completed = new Map();
    events.on("completed", ({ jobId, returnvalue }) => {
        completed.set(jobId, [...(completed.get(jobId) ?? []), returnvalue]);
    });
    const added = await jobs.addBulk(
        Array.from({ length: JOBS }, (_, n) => {
            const failures = n % 10 === 0 ? 2 : 0;
            const opts = { attempts: 3, backoff: { type: "exponential", delay: 20 } };
            if (n % 7 === 0) opts.delay = 1000;
            return { name: "work", data: { value: n, failures }, opts };
        }),
    );
    const options = { concurrency: 5, lockDuration: 2000, stalledInterval: 500, maxStalledCount: 5 };
    for (let n = 0; n < 3; n++) worker("bulk", flaky, options);
    await until(() => completed.size > 60, "sixty jobs are done");
    await kill(port);
    await until(async () => (await counts(jobs, "completed")) === JOBS, "all jobs are done");
    await until(() => completed.size === JOBS, "all events have come");
    for (const [n, { id }] of added.entries()) {
        const job = await jobs.getJob(id);
        assert.equal(job.returnvalue, n);
        assert.deepEqual(completed.get(id), [n], `events of job ${id}`);
        assert(job.processedOn - job.timestamp >= (n % 7 === 0 ? 1000 : 0), `job ${id} was early`);
        // A job that ran when the server died may run again.
        assert(Number(await notes.get(`ran:bulk:${id}`)) >= (n % 10 === 0 ? 3 : 1), `runs of job ${id}`);
    }
    let again = 0;
    for (const [n, { id }] of added.entries()) {
        if (Number(await notes.get(`ran:bulk:${id}`)) > (n % 10 === 0 ? 3 : 1)) again++;
    }
    assert(again <= 15, `${again} jobs ran again, and 15 at most had begun when the server died`);
    const stream = await notes.xrange("bull:bulk:events", "-", "+");
    assert.equal(stream.filter(([, fields]) => fields[fields.indexOf("event") + 1] === "completed").length, JOBS);
}

async function failures() {
    const jobs = queue("failing");
    const job = await jobs.add("work", { value: "x", failures: 2 }, { attempts: 2, backoff: 10 });
    worker("failing", flaky);
    await until(() => job.isFailed(), "the job has failed");
    const failed = await jobs.getJob(job.id);
    assert.equal(failed.failedReason, "fails in run 2");
    assert.equal(failed.attemptsMade, 2);
    await failed.retry();
    await until(() => job.isCompleted(), "the job's new try");
    assert.equal((await jobs.getJob(job.id)).returnvalue, "x");
    assert.equal(await counts(jobs, "failed"), 0);
}

async function priorities() {
    const jobs = queue("priorities");
    for (let n = 0; n < 20; n++) await jobs.add("work", { value: n }, { priority: 1 + ((n * 7) % 20) });
    await jobs.add("work", { value: 100 }, { jobId: "same" });
    await jobs.add("work", { value: 101 }, { jobId: "same" });
    assert.equal((await jobs.getPrioritized()).length, 20);
    const order = [];
    worker("priorities", async (job) => order.push([job.opts.priority, job.data.value]));
    await until(() => order.length === 21, "all jobs are done");
    assert.deepEqual(order[0], [undefined, 100]);
    assert.deepEqual(order.slice(1).map(([priority]) => priority), Array.from({ length: 20 }, (_, n) => n + 1));
}

async function flow() {
    const parents = queue("parents");
    worker("children", flaky);
    worker("parents", async (job) => {
        const values = Object.values(await job.getChildrenValues());
        return values.reduce((sum, value) => sum + value, 0);
    });
    const producer = open(new FlowProducer({ connection }));
    const children = Array.from({ length: 20 }, (_, n) => ({
        name: "child",
        queueName: "children",
        data: { value: n, failures: n % 5 === 0 ? 1 : 0 },
        opts: { attempts: 2 },
    }));
    const tree = await producer.add({ name: "parent", queueName: "parents", children });
    await until(() => tree.job.isCompleted(), "the parent is done after its children");
    assert.equal((await parents.getJob(tree.job.id)).returnvalue, 190);
    assert.equal(Object.keys((await tree.job.getDependencies()).processed).length, 20);
}

async function limits() {
    const jobs = queue("limited");
    await jobs.addBulk(Array.from({ length: 25 }, (_, n) => ({ name: "work", data: { value: n } })));
    const began = Date.now();
    const times = [];
    worker("limited", async () => times.push(Date.now() - began), { limiter: { max: 10, duration: 500 }, concurrency: 5 });
    await until(() => times.length === 25, "the limited jobs are done");
    assert(times[24] >= 900, `25 jobs at 10 in 500 ms took ${times[24]} ms`);
    await jobs.pause();
    const waiting = await jobs.add("work", {});
    await sleep(200);
    assert(!(await waiting.isCompleted()), "a paused queue worked");
    await jobs.resume();
    await until(() => waiting.isCompleted(), "the resumed queue works");
}

async function schedule() {
    const jobs = queue("schedule");
    await jobs.upsertJobScheduler("tick", { every: 200 }, { name: "tick", data: { value: 1 } });
    const ticks = [];
    worker("schedule", async () => ticks.push(Date.now()));
    await until(() => ticks.length >= 5, "five ticks");
    assert(ticks[4] - ticks[0] >= 600, `five ticks came within ${ticks[4] - ticks[0]} ms`);
    assert.equal((await jobs.getJobSchedulers()).length, 1);
    assert(await jobs.removeJobScheduler("tick"));
    const before = ticks.length;
    await sleep(500);
    assert(ticks.length <= before + 1, "the schedule goes on after its end");
}

// The worker is killed with a job in its hands; when the job's lock has expired another takes it over.
async function takenOver() {
    const jobs = queue("orphans");
    const events = open(new QueueEvents("orphans", { connection }));
    await events.waitUntilReady();
    const stalled = [];
    events.on("stalled", ({ jobId }) => stalled.push(jobId));
    const child = fork(fileURLToPath(import.meta.url), [String(port), "hang"]);
    const job = await jobs.add("work", { value: "saved" });
    await until(async () => (await notes.get(`ran:orphans:${job.id}`)) === "1", "the job runs");
    assert.equal(await job.getState(), "active");
    child.kill("SIGKILL");
    worker("orphans", flaky, { stalledInterval: 300 });
    await until(() => job.isCompleted(), "the job is taken over");
    assert.equal(await notes.get(`ran:orphans:${job.id}`), "2");
    await until(() => stalled.length > 0, "the event tells");
    assert.deepEqual(stalled, [job.id]);
}

async function main() {
    for (const step of [bulk, failures, priorities, flow, limits, schedule, takenOver]) {
        try {
            await step();
        } catch (error) {
            console.error(`in ${step.name}:`);
            throw error;
        }
    }
    // A schedule's last job waits for its time, and nothing else.
    const left = await Promise.all(closing.filter((one) => one instanceof Queue).map((one) => one.getWaitingCount()));
    assert.deepEqual(left, left.map(() => 0));
    await Promise.all(closing.map((one) => one.close()));
    notes.disconnect();
    console.log(`BullMQ: ${JOBS} jobs, retries, delays, flows, limits, a worker and the server killed, no job lost`);
}

async function hang(job) {
    await ran(job);
    await sleep(100_000);
}

process.on("disconnect", () => process.exit()); // The program that started this worker has ended.
if (process.argv[3] === "hang") worker("orphans", hang, { lockDuration: 1000, stalledInterval: 300 });
else await main();
