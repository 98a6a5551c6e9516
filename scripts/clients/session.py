"""A session of redis-py over all types, as an application would have it.

    python session.py PORT

Every step says what a user of Redis expects. It passes on Redis 7.0 itself.
"""

import sys
import threading
import time

import redis

PORT = int(sys.argv[1])


def connect(**options):
    return redis.Redis(port=PORT, decode_responses=True, **options)


def refused(call, words):
    """The call must raise redis-py's error with these words in it."""
    try:
        call()
    except redis.ResponseError as error:
        assert words in str(error), f"{error} does not say {words!r}"
    else:
        raise AssertionError(f"not refused: {words}")


def strings(r):
    assert r.set("greeting", "hello") is True
    assert r.get("greeting") == "hello"
    assert r.set("greeting", "again", nx=True) is None
    assert r.set("greeting", "new", xx=True, get=True) == "hello"
    assert r.append("greeting", "!") == 4
    assert r.getrange("greeting", 0, 2) == "new"
    assert r.setrange("greeting", 3, "s") == 4
    assert r.mset({"a": 1, "b": 2}) is True
    assert r.mget("a", "b", "none") == ["1", "2", None]
    assert r.incr("a", 41) == 42
    assert r.decr("a") == 41
    assert r.incrbyfloat("b", 0.5) == 2.5
    assert r.getdel("b") is None or r.get("b") is None
    assert r.setbit("bits", 7, 1) == 0
    assert r.bitcount("bits") == 1
    assert r.bitpos("bits", 1) == 7
    assert r.bitfield("bits").set("u8", 8, 255).get("u4", 8).execute() == [0, 15]
    binary = redis.Redis(port=PORT)
    binary.set("binary", bytes(range(256)))
    assert binary.get("binary") == bytes(range(256))
    assert r.strlen("binary") == 256
    refused(lambda: r.incr("greeting"), "value is not an integer or out of range")


def keys(r):
    r.set("k", "v", ex=1000)
    assert 990 < r.ttl("k") <= 1000
    assert r.persist("k") is True and r.ttl("k") == -1
    assert r.pexpire("k", 20) is True
    time.sleep(0.05)
    assert r.exists("k") == 0 and r.ttl("k") == -2
    r.set("from", "v")
    assert r.rename("from", "to") is True and r.type("to") == "string"
    assert r.copy("to", "twin") is True
    assert r.unlink("to", "twin", "none") == 2
    r.mset({f"many:{i}": i for i in range(300)})
    assert len(set(r.scan_iter("many:*", count=20))) == 300
    assert len(r.keys("many:?")) == 10
    assert r.randomkey() is not None
    assert r.object("encoding", "many:1") == "int"
    dumped = redis.Redis(port=PORT).dump("many:7")
    assert redis.Redis(port=PORT).restore("restored", 0, dumped) == b"OK"
    assert r.get("restored") == "7"
    refused(lambda: r.rename("none", "any"), "no such key")


def hashes(r):
    assert r.hset("h", mapping={"f": 1, "g": "two"}) == 2
    assert r.hgetall("h") == {"f": "1", "g": "two"}
    assert r.hincrby("h", "f", 4) == 5
    assert r.hincrbyfloat("h", "x", 1.5) == 1.5
    assert r.hmget("h", "f", "none") == ["5", None]
    assert r.hdel("h", "x") == 1 and r.hlen("h") == 2
    assert sorted(r.hkeys("h")) == ["f", "g"] and r.hexists("h", "g") is True
    big = {f"field{i}": "v" * 50 for i in range(1000)}
    r.hset("big", mapping=big)
    assert r.hgetall("big") == big
    assert dict(r.hscan_iter("big", count=100)) == big
    assert r.hrandfield("h") in ("f", "g")
    refused(lambda: r.lpush("h", 1), "WRONGTYPE")


def lists(r):
    assert r.rpush("l", "a", "b", "c") == 3
    assert r.lpush("l", "z") == 4
    assert r.lrange("l", 0, -1) == ["z", "a", "b", "c"]
    assert r.linsert("l", "BEFORE", "b", "between") == 5
    assert r.lindex("l", 2) == "between" and r.lset("l", 2, "x") is True
    assert r.lrem("l", 0, "x") == 1
    assert r.lpos("l", "c") == 3
    assert r.lpop("l") == "z" and r.rpop("l", 2) == ["c", "b"]
    assert r.lmove("l", "other", "LEFT", "RIGHT") == "a" and r.exists("l") == 0
    assert list(r.blpop("other", timeout=1)) == ["other", "a"]
    began = time.monotonic()
    assert r.blpop("other", timeout=0.1) is None
    assert 0.09 < time.monotonic() - began < 5
    threading.Timer(0.05, lambda: connect().rpush("awaited", "x")).start()
    assert list(r.brpop(["none", "awaited"], timeout=10)) == ["awaited", "x"]
    r.rpush("long", *range(5000))
    assert r.llen("long") == 5000 and r.lrange("long", 2500, 2502) == ["2500", "2501", "2502"]
    r.ltrim("long", 10, 12)
    assert r.lrange("long", 0, -1) == ["10", "11", "12"]


def sets(r):
    assert r.sadd("s1", "a", "b", "c") == 3 and r.sadd("s2", "b", "c", "d") == 3
    assert r.smembers("s1") == {"a", "b", "c"}
    assert r.sinter("s1", "s2") == {"b", "c"} and r.sdiff("s1", "s2") == {"a"}
    assert r.sunionstore("s3", "s1", "s2") == 4
    assert r.sismember("s3", "d") and r.smismember("s3", ["a", "x"]) == [1, 0]
    assert r.smove("s1", "s2", "a") and r.scard("s2") == 4
    assert r.sintercard(2, ["s1", "s2"]) == 2
    assert r.spop("s3") in {"a", "b", "c", "d"} and r.scard("s3") == 3
    assert len(r.srandmember("s3", 5)) == 3
    r.sadd("numbers", *range(2000))
    assert set(r.sscan_iter("numbers")) == {str(i) for i in range(2000)}


def sorted_sets(r):
    assert r.zadd("z", {"one": 1, "two": 2, "three": 3}) == 3
    scored = [tuple(pair) for pair in r.zrange("z", 0, -1, withscores=True)]
    assert scored == [("one", 1.0), ("two", 2.0), ("three", 3.0)]
    assert r.zadd("z", {"one": 0.5}, gt=True) == 0 and r.zscore("z", "one") == 1.0
    assert r.zincrby("z", 2.5, "one") == 3.5
    assert r.zrevrank("z", "one") == 0 and r.zrank("z", "nobody") is None
    assert r.zrangebyscore("z", "(2", "+inf") == ["three", "one"]
    assert r.zcount("z", 2, 3) == 2
    r.zadd("lex", {c: 0 for c in "abcdef"})
    assert r.zrangebylex("lex", "[b", "(e") == ["b", "c", "d"]
    assert r.zunion(["z", "lex"])[-1] == "one"
    assert r.zinterstore("zi", {"z": 2, "lex": 1}) == 0
    # With RESP3 redis-py gives a pair where with RESP2 it gives a list of pairs.
    assert "two" in str(r.zpopmin("z")) and "one" in str(r.zpopmax("z"))
    assert list(r.bzpopmin("z", timeout=1)) == ["z", "three", 3.0]
    r.zadd("rank", {f"m{i:04}": i for i in range(3000)})
    assert r.zrank("rank", "m1234") == 1234
    assert r.zrange("rank", 10, 12) == ["m0010", "m0011", "m0012"]
    assert r.zremrangebyrank("rank", 0, 2996) == 2997 and r.zcard("rank") == 3


def transactions(r):
    with r.pipeline() as pipe:
        pipe.set("t", 1).incr("t").rpush("tl", "x")
        assert pipe.execute() == [True, 2, 1]
    with r.pipeline() as pipe:
        pipe.watch("t")
        value = int(pipe.get("t"))
        connect().set("t", 100)
        pipe.multi()
        pipe.set("t", value + 1)
        try:
            pipe.execute()
            raise AssertionError("WATCH saw nothing")
        except redis.WatchError:
            pass
    assert r.get("t") == "100"
    r.transaction(lambda pipe: (pipe.multi(), pipe.incr("t")), "t")
    assert r.get("t") == "101"
    with r.pipeline() as pipe:
        pipe.set("ok", 1).lpush("ok", 1).set("ok2", 2)
        results = pipe.execute(raise_on_error=False)
    assert isinstance(results[1], redis.ResponseError) and r.get("ok2") == "2"
    lock = r.lock("a lock", timeout=5)
    try:
        assert lock.acquire(blocking=False)
    finally:
        r.delete("a lock")


def channels(r):
    listener = connect().pubsub()
    listener.subscribe("news")
    listener.psubscribe("sp*")
    assert [listener.get_message(timeout=5)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
    assert r.publish("news", "hello") == 1 and r.publish("sport", "goal") == 1
    assert r.pubsub_numsub("news") == [("news", 1)]
    first, second = listener.get_message(timeout=5), listener.get_message(timeout=5)
    assert (first["channel"], first["data"]) == ("news", "hello")
    assert (second["pattern"], second["channel"], second["data"]) == ("sp*", "sport", "goal")
    assert r.config_set("notify-keyspace-events", "KEA")
    listener.psubscribe("__keyevent@0__:set")
    assert listener.get_message(timeout=5)["type"] == "psubscribe"
    r.set("noticed", 1)
    assert listener.get_message(timeout=5)["data"] == "noticed"
    r.config_set("notify-keyspace-events", "")
    listener.close()


def server(r):
    assert r.ping() and r.echo("x") == "x"
    assert r.dbsize() > 0 and r.info()["redis_version"].startswith("7.")
    assert r.client_setname("me") and r.client_getname() == "me"
    assert any(client["name"] == "me" for client in r.client_list())
    assert r.config_get("maxclients")["maxclients"].isdigit()
    assert "get" in r.command() and r.command_count() > 150
    assert isinstance(r.time(), tuple) and isinstance(r.slowlog_get(), list)
    assert r.memory_usage("big") > 1000
    other = connect(db=1)
    other.set("elsewhere", 1)
    assert r.exists("elsewhere") == 0 and r.swapdb(0, 1) and r.exists("elsewhere") == 1
    r.swapdb(0, 1)
    assert r.move("noticed", 1) and other.exists("noticed") == 1
    assert r.sort("numbers", start=0, num=3) == ["0", "1", "2"]
    refused(lambda: r.execute_command("NONSENSE", 1), "unknown command")
    assert r.flushall() and r.dbsize() == 0


def main():
    for protocol in (2, 3):
        r = connect(protocol=protocol)
        r.flushall()
        steps = (strings, keys, hashes, lists, sets, sorted_sets, transactions, channels, server)
        for step in steps:
            try:
                step(r)
            except Exception:
                print(f"in {step.__name__}, RESP{protocol}:", file=sys.stderr)
                raise
    print(f"redis-py {redis.__version__}: all types, RESP2 and RESP3")


main()
