import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RMapCache;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RReliableTopic;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTopic;
import org.redisson.api.RTransaction;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.client.RedisException;
import org.redisson.client.codec.IntegerCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.codec.CompositeCodec;
import org.redisson.config.Config;

/**
 * Redisson: its locks and what else waits for a channel's message, its maps, topics, and several locks over three
 * servers, of which one is killed.
 *
 * <p>Run with the ports of three servers.
 */
public class Session {
    private static final int WORKERS = 6;
    private static final int ROUNDS = 40;

    private static String[] ports;
    private static RedissonClient one;
    private static RedissonClient other;

    private static RedissonClient connect(String port, long watchdogMillis) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis);
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(16)
                .setSubscriptionConnectionPoolSize(8)
                .setRetryAttempts(20)
                .setTimeout(3_000);
        return Redisson.create(config);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void until(int seconds, String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "not within " + seconds + " s: " + what);
            Thread.sleep(20);
        }
    }

    /** The process of the server at a port; 0 if none is ready there. */
    private static long process(String port) {
        try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(port))) {
            socket.setSoTimeout(10_000);
            socket.getOutputStream().write("PING\r\nINFO server\r\nQUIT\r\n".getBytes(StandardCharsets.US_ASCII));
            String replies = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            Matcher process = Pattern.compile("process_id:(\\d+)").matcher(replies);
            return replies.startsWith("+PONG") && process.find() ? Long.parseLong(process.group(1)) : 0;
        } catch (IOException gone) {
            return 0;
        }
    }

    /** Kills the server as a power cut would, and waits until the one that is started in its place answers. */
    private static void kill(String port) throws IOException, InterruptedException {
        long dead = process(port);
        check(dead != 0, "the server on port " + port + " does not tell its process");
        check(new ProcessBuilder("kill", "-9", Long.toString(dead)).start().waitFor() == 0, "no kill");
        until(30, "the server is back", () -> {
            long now = process(port);
            return now != 0 && now != dead;
        });
    }

    private static void together(int count, Callable<Void> task) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(count);
        List<Future<Void>> done = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            done.add(pool.submit(task));
        }
        for (Future<Void> future : done) {
            future.get(120, TimeUnit.SECONDS);
        }
        pool.shutdown();
    }

    /** Read and write: what another did in between would be lost. Who waits is woken by a message. */
    private static void exclusion(boolean fair) throws Exception {
        String name = fair ? "fair" : "plain";
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger next = new AtomicInteger();
        together(WORKERS, () -> {
            RedissonClient client = next.getAndIncrement() % 2 == 0 ? one : other;
            RLock lock = fair ? client.getFairLock("fair") : client.getLock("plain");
            RBucket<Integer> count = client.getBucket("count:" + name);
            for (int round = 0; round < ROUNDS; round++) {
                lock.lock();
                try {
                    check(inside.incrementAndGet() == 1, "two workers are inside");
                    Integer before = count.get();
                    count.set(before == null ? 1 : before + 1);
                    inside.decrementAndGet();
                } finally {
                    lock.unlock();
                }
            }
            return null;
        });
        int counted = one.<Integer>getBucket("count:" + name).get();
        check(counted == WORKERS * ROUNDS, counted + " turns were counted");
        check(!one.getLock(name).isLocked(), "the lock is left behind");
    }

    private static void times() throws Exception {
        RLock mine = one.getLock("timed");
        RLock theirs = other.getLock("timed");
        mine.lock();
        mine.lock();
        check(mine.getHoldCount() == 2 && mine.isHeldByCurrentThread(), "the lock is taken twice by its owner");
        mine.unlock();
        check(mine.isLocked() && !theirs.tryLock(), "the lock is free too early");
        // The watchdog extends a lock without a time; the clients' is at 900 ms.
        Thread.sleep(2000);
        check(theirs.isLocked() && !theirs.tryLock(), "the watchdog slept");
        long left = mine.remainTimeToLive();
        check(0 < left && left <= 900, "the lock has " + left + " ms left");
        // Who waits is woken by the message of who unlocks, not by the end of a time.
        Thread holder = Thread.currentThread();
        check(holder.isAlive() && !theirs.tryLock(100, TimeUnit.MILLISECONDS), "the lock was free");
        CountDownLatch waits = new CountDownLatch(1);
        ExecutorService pool = Executors.newSingleThreadExecutor();
        Future<Long> woken = pool.submit(() -> {
            waits.countDown();
            check(theirs.tryLock(20, 20, TimeUnit.SECONDS), "nobody woke who waits");
            long at = System.nanoTime();
            theirs.unlock();
            return at;
        });
        check(waits.await(10, TimeUnit.SECONDS), "no thread");
        Thread.sleep(300);
        long began = System.nanoTime();
        mine.unlock();
        long millis = TimeUnit.NANOSECONDS.toMillis(woken.get(30, TimeUnit.SECONDS) - began);
        check(millis < 3000, "who waits was woken after " + millis + " ms");
        pool.shutdown();
        // A lock with a time ends by itself.
        check(mine.tryLock(0, 300, TimeUnit.MILLISECONDS), "the lock is not free");
        check(theirs.tryLock(5, TimeUnit.SECONDS), "the lock did not end");
        try {
            mine.unlock();
            check(false, "a lock that is another's was released");
        } catch (IllegalMonitorStateException expected) {
            theirs.unlock();
        }
        RReadWriteLock both = one.getReadWriteLock("both");
        check(both.readLock().tryLock() && other.getReadWriteLock("both").readLock().tryLock(), "two readers");
        check(!other.getReadWriteLock("both").writeLock().tryLock(), "a writer beside readers");
        both.readLock().unlock();
        other.getReadWriteLock("both").readLock().unlock();
        check(other.getReadWriteLock("both").writeLock().tryLock(), "a writer alone");
        other.getReadWriteLock("both").writeLock().unlock();
    }

    private static void waiting() throws Exception {
        RSemaphore permits = one.getSemaphore("permits");
        check(permits.trySetPermits(3), "permits");
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        together(8, () -> {
            RSemaphore mine = other.getSemaphore("permits");
            for (int n = 0; n < 10; n++) {
                mine.acquire();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                Thread.sleep(2);
                inside.decrementAndGet();
                mine.release();
            }
            return null;
        });
        check(most.get() == 3, most + " were inside at once, of three permits");
        RCountDownLatch latch = one.getCountDownLatch("latch");
        check(latch.trySetCount(5), "the latch");
        ExecutorService pool = Executors.newSingleThreadExecutor();
        Future<Boolean> waited = pool.submit(() -> other.getCountDownLatch("latch").await(20, TimeUnit.SECONDS));
        for (int n = 0; n < 5; n++) {
            check(!waited.isDone(), "the latch opened too early");
            Thread.sleep(50);
            latch.countDown();
        }
        check(waited.get(), "the latch did not open");
        RBlockingQueue<String> queue = one.getBlockingQueue("queue");
        Future<String> taken = pool.submit(() -> other.<String>getBlockingQueue("queue").poll(20, TimeUnit.SECONDS));
        Thread.sleep(100);
        queue.add("first");
        check("first".equals(taken.get()), "what was queued");
        pool.shutdown();
        RRateLimiter limiter = one.getRateLimiter("limiter");
        check(limiter.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(1)), "the rate");
        int granted = 0;
        for (int n = 0; n < 20; n++) {
            granted += other.getRateLimiter("limiter").tryAcquire() ? 1 : 0;
        }
        check(granted >= 5 && granted <= 10, granted + " of five permits a second were granted");
        check(limiter.tryAcquire(5, Duration.ofSeconds(10)), "the rate does not return");
    }

    private static void maps() throws Exception {
        RMap<String, Integer> map = one.getMap("map");
        RMap<String, Integer> same = other.getMap("map");
        Map<String, Integer> big = new HashMap<>();
        for (int n = 0; n < 2000; n++) {
            big.put("key" + n, n);
        }
        map.putAll(big);
        check(same.readAllMap().equals(big) && same.size() == 2000, "the map is another");
        Set<String> seen = new HashSet<>(same.keySet(100));
        check(seen.equals(big.keySet()), "the map's keys are others");
        check(map.putIfAbsent("key1", 7) == 1 && map.putIfAbsent("new", 7) == null, "putIfAbsent");
        check(same.replace("new", 7, 8) && !map.replace("new", 7, 9), "replace");
        check(map.remove("new", 8) && !same.containsKey("new"), "remove");
        RMap<String, Integer> counts =
                one.getMap("counts", new CompositeCodec(StringCodec.INSTANCE, IntegerCodec.INSTANCE));
        check(counts.addAndGet("n", 8) == 8 && counts.addAndGet("n", 34) == 42, "addAndGet");
        check(map.fastRemove("key1", "key2", "none") == 2, "fastRemove");
        together(4, () -> {
            for (int n = 0; n < 50; n++) {
                RLock lock = one.<String, Integer>getMap("map").getLock("key3");
                lock.lock();
                Integer before = same.get("key3");
                same.put("key3", before + 1);
                lock.unlock();
            }
            return null;
        });
        check(map.get("key3") == 203, "turns at a key's lock were lost");
        RMapCache<String, String> cache = one.getMapCache("cache");
        cache.put("short", "v", 300, TimeUnit.MILLISECONDS);
        cache.put("idle", "v", 10, TimeUnit.SECONDS, 600, TimeUnit.MILLISECONDS);
        cache.put("long", "v", 100, TimeUnit.SECONDS);
        check("v".equals(other.<String, String>getMapCache("cache").get("short")), "the cache forgot");
        for (int n = 0; n < 5; n++) {
            Thread.sleep(200);
            check("v".equals(cache.get("idle")), "the cache forgot what is used");
        }
        check(cache.get("short") == null && "v".equals(cache.get("long")), "the cache's times");
        cache.setMaxSize(10);
        for (int n = 0; n < 50; n++) {
            cache.put("many" + n, "v");
        }
        check(cache.size() <= 10, cache.size() + " entries in a cache of ten");
        RTransaction transaction = one.createTransaction(TransactionOptions.defaults());
        transaction.<String, Integer>getMap("map").put("in transaction", 1);
        transaction.getBucket("also").set("x");
        check(!same.containsKey("in transaction"), "seen before the commit");
        transaction.commit();
        check(same.get("in transaction") == 1 && "x".equals(other.getBucket("also").get()), "the commit");
    }

    private static void topics() throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        RTopic topic = one.getTopic("topic");
        int listener = topic.addListener(String.class, (channel, message) -> heard.add(message));
        check(other.getTopic("topic").publish("hello") == 1, "who listens");
        check("hello".equals(heard.poll(10, TimeUnit.SECONDS)), "the message");
        topic.removeListener(listener);
        // A topic over a stream: each listener hears all.
        RReliableTopic reliable = one.getReliableTopic("reliable");
        reliable.addListener(String.class, (channel, message) -> heard.add(message));
        for (int n = 0; n < 100; n++) {
            other.getReliableTopic("reliable").publish("message " + n);
        }
        for (int n = 0; n < 100; n++) {
            check(("message " + n).equals(heard.poll(10, TimeUnit.SECONDS)), "message " + n);
        }
        reliable.removeAllListeners();
    }

    /** Whether the lock is there; it is not if a server dies meanwhile. */
    private static boolean tryLock(RLock lock) throws InterruptedException {
        try {
            return lock.tryLock(1_000, 4_000, TimeUnit.MILLISECONDS);
        } catch (RedisException died) {
            return false;
        }
    }

    /** Several locks as one, over three servers; one of them is killed. */
    private static void redlock() throws Exception {
        List<List<RedissonClient>> clients = new ArrayList<>();
        for (int n = 0; n < WORKERS; n++) {
            clients.add(new ArrayList<>());
            for (String port : ports) {
                clients.get(n).add(connect(port, 900));
            }
        }
        RBucket<Integer> count = one.getBucket("count:multi");
        AtomicInteger next = new AtomicInteger();
        AtomicInteger turns = new AtomicInteger();
        together(WORKERS, () -> {
            List<RedissonClient> mine = clients.get(next.getAndIncrement());
            RLock lock = new RedissonMultiLock(
                    mine.stream().map(client -> client.getLock("multi")).toArray(RLock[]::new));
            for (int round = 0; round < 15; round++) {
                while (!tryLock(lock)) {
                    Thread.sleep(5);
                }
                Integer before = count.get();
                count.set(before == null ? 1 : before + 1);
                try {
                    lock.unlock();
                } catch (RedisException died) {
                    // The server that died did not tell; the lock there ends with its time.
                }
                if (turns.incrementAndGet() == 30) {
                    kill(ports[1]);
                }
            }
            return null;
        });
        check(count.get() == WORKERS * 15, count.get() + " of " + WORKERS * 15 + " turns were counted");
        clients.forEach(some -> some.forEach(client -> client.shutdown()));
    }

    /** Maps and a lock are there after the server's death; who waits for the lock gets it. */
    private static void deadServer() throws Exception {
        RMap<String, Integer> map = one.getMap("kept");
        RLock lock = one.getLock("kept lock");
        lock.lock(30, TimeUnit.SECONDS);
        for (int n = 0; n < 300; n++) {
            map.fastPut("key" + n, n);
        }
        ExecutorService pool = Executors.newSingleThreadExecutor();
        Future<Boolean> waited = pool.submit(() -> other.getLock("kept lock").tryLock(60, TimeUnit.SECONDS));
        Thread.sleep(200);
        kill(ports[0]);
        check(map.size() == 300 && map.get("key299") == 299, "the map lost entries");
        check(lock.isLocked() && lock.isHeldByCurrentThread(), "the lock died with the server");
        check(lock.remainTimeToLive() <= 30_000, "the lock's time began anew");
        // The subscription of who waits is renewed; until then the message would be lost, as with any server.
        RTopic wakeup = one.getTopic("redisson_lock__channel:{kept lock}");
        until(30, "who waits listens again", () -> wakeup.countSubscribers() > 0);
        check(!waited.isDone(), "the lock was given twice");
        lock.unlock();
        check(waited.get(30, TimeUnit.SECONDS), "who waits did not get the lock");
        pool.shutdownNow();
    }

    private interface Step {
        void run() throws Exception;
    }

    public static void main(String[] args) {
        ports = args;
        one = connect(ports[0], 900);
        other = connect(ports[0], 900);
        Map<String, Step> steps = new java.util.LinkedHashMap<>();
        steps.put("exclusion", () -> exclusion(false));
        steps.put("fairness", () -> exclusion(true));
        steps.put("times", Session::times);
        steps.put("waiting", Session::waiting);
        steps.put("maps", Session::maps);
        steps.put("topics", Session::topics);
        steps.put("redlock", Session::redlock);
        steps.put("dead server", Session::deadServer);
        for (Map.Entry<String, Step> step : steps.entrySet()) {
            try {
                step.getValue().run();
            } catch (Throwable error) {
                System.err.println("in " + step.getKey() + ":");
                error.printStackTrace();
                System.exit(1);
            }
        }
        System.out.println("Redisson: its locks exclude, extend and wake who waits, maps and topics, servers killed");
        System.exit(0);
    }
}
