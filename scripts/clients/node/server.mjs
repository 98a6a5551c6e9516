// The server at a port, its death, and what the programs share.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

// A client that does not mind when the server goes away for a while.
export function connect(port, options = {}) {
    const client = new Redis({ port, maxRetriesPerRequest: null, retryStrategy: () => 50, ...options });
    client.on("error", () => {});
    return client;
}

const processId = async (client) => Number(/process_id:(\d+)/.exec(await client.info("server"))[1]);

// Kills the server as a power cut would, and waits until the one that is started in its place answers.
export async function kill(port) {
    const client = connect(port);
    const dead = await processId(client);
    process.kill(dead, "SIGKILL");
    await until(async () => (await client.ping()) && (await processId(client)) !== dead, "the server is back");
    client.disconnect();
}

export async function until(condition, what, seconds = 60) {
    const deadline = Date.now() + seconds * 1000;
    for (;;) {
        const seen = await condition();
        if (seen) return seen;
        assert(Date.now() < deadline, `not within ${seconds} s: ${what}`);
        await sleep(20);
    }
}
