// node-redlock over three servers: workers that exclude each other while one of the servers is killed, several
// resources in one lock, extension by itself, and expiry.
//
//   node node-redlock_session.mjs PORT PORT PORT
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import Redlock, { ExecutionError } from "redlock";
import { connect, kill } from "./server.mjs";

const ports = process.argv.slice(2, 5).map(Number);
const WORKERS = 6;
const ROUNDS = 30;

const made = [];
function locks() {
    const clients = ports.map((port) => connect(port));
    made.push(...clients);
    return new Redlock(clients, { retryCount: 0 });
}

// Tries until the lock is there. The retries of node-redlock itself keep, of a try that failed, the locks that it had
// from the fewer servers.
async function patient(redlock, resources, duration) {
    for (;;) {
        try {
            return await redlock.acquire(resources, duration);
        } catch (error) {
            assert(error instanceof ExecutionError, error);
            await sleep(Math.random() * 20);
        }
    }
}

// Read, wait, write: what another did in between would be lost.
async function exclusion() {
    const data = connect(ports[0]);
    made.push(data);
    let inside = 0;
    let turns = 0;
    const worker = async () => {
        const redlock = locks();
        for (let round = 0; round < ROUNDS; round++) {
            const lock = await patient(redlock, ["turn"], 5000);
            assert.equal(++inside, 1, "two workers are inside");
            const before = Number((await data.get("count")) ?? 0);
            await sleep(1);
            await data.set("count", before + 1);
            inside--;
            await lock.release();
            if (++turns === 40) await kill(ports[1]);
        }
    };
    await Promise.all(Array.from({ length: WORKERS }, worker));
    assert.equal(Number(await data.get("count")), WORKERS * ROUNDS, "turns were lost");
}

async function resources() {
    const redlock = locks();
    const both = await redlock.acquire(["left", "right"], 5000);
    await assert.rejects(redlock.acquire(["right"], 5000), ExecutionError);
    await assert.rejects(redlock.acquire(["left", "other"], 5000), ExecutionError);
    const other = await redlock.acquire(["other"], 5000);
    await both.release();
    await other.release();
    await (await redlock.acquire(["right"], 5000)).release();
}

async function times() {
    const owner = locks();
    const hasty = locks();
    // The work takes longer than the lock, which is extended on the way.
    await owner.using(["long"], 800, { automaticExtensionThreshold: 400 }, async (signal) => {
        for (let n = 0; n < 12; n++) {
            await sleep(150);
            await assert.rejects(hasty.acquire(["long"], 800), ExecutionError);
        }
        assert(!signal.aborted);
    });
    const lost = await owner.acquire(["lost"], 300);
    const began = Date.now();
    const heir = await patient(owner, ["lost"], 5000);
    assert(Date.now() - began > 150, "the lock was there twice");
    await assert.rejects(hasty.extend(lost, 1000));
    await assert.rejects(hasty.release(lost));
    await assert.rejects(hasty.acquire(["lost"], 800), ExecutionError);
    await heir.release();
}

await exclusion();
await resources();
await times();
for (const client of made) client.disconnect();
console.log("node-redlock: excludes while one of three servers dies, extends, expires");
