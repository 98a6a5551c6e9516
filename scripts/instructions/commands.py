"""The requests whose instructions are counted, and the data that they meet.

Every write changes something: a write that changes nothing has no record in the log. Elements are new, and values are
random.
"""

import hashlib
import random

KEYS, VALUE_BYTES = 20_000, 100
SMALL_LISTS, SMALL_ITEMS = 1_000, 50
# The script of scripts/bench-redis-commands.sh: five commands.
SCRIPT = b"""local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', KEYS[2])
redis.call('EXPIRE', KEYS[2], 1000) return redis.call('GET', KEYS[2])"""
SHA = hashlib.sha1(SCRIPT).hexdigest().encode()


def encode(*words):
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def value():
    """Returns a random value without a line feed, because replies are counted by their lines."""
    return b"%0*x" % (VALUE_BYTES, random.getrandbits(4 * VALUE_BYTES))


def named(prefix, number):
    return b"%s:%012d" % (prefix, number)


def one_of(prefix):
    return named(prefix, random.randrange(KEYS))


def small_list(number):
    return named(b"list", number % SMALL_LISTS)


def strings():
    return [encode(b"SET", named(b"key", n), value()) for n in range(KEYS)]


def counters():
    return [encode(b"SET", named(b"counter", n), b"%d" % n) for n in range(KEYS)]


def small_lists():
    items = [b"VXK"] * SMALL_ITEMS
    return [encode(b"RPUSH", small_list(n), *items) for n in range(SMALL_LISTS)]


def lpush(_):
    return encode(b"LPUSH", b"mylist", b"VXK")


def sadd(n):
    return encode(b"SADD", b"myset", named(b"element", n))


def hset(n):
    return encode(b"HSET", b"myhash", named(b"element", n), b"VXK")


def zadd(n):
    return encode(b"ZADD", b"myzset", b"%d" % random.randrange(1_000_000), named(b"element", n))


def xadd(n):
    return encode(b"XADD", b"mystream", b"*", b"field", named(b"value", n))


def evalsha(n):
    return encode(b"EVALSHA", SHA, b"2", one_of(b"key"), one_of(b"counter"), named(b"value", n))


def before(request):
    """Returns the fill of a collection: the first requests of the same kind."""
    return lambda: [request(n) for n in range(KEYS)]


# Of each command: the requests that fill the database, and the n-th request that is counted.
COMMANDS = {
    "SET": (strings, lambda _: encode(b"SET", one_of(b"key"), value())),
    "GET": (strings, lambda _: encode(b"GET", one_of(b"key"))),
    "INCR": (counters, lambda _: encode(b"INCR", one_of(b"counter"))),
    "LPUSH": (before(lpush), lpush),
    "RPOP": (before(lpush), lambda _: encode(b"RPOP", b"mylist")),
    "SADD": (before(sadd), sadd),
    "HSET": (before(hset), hset),
    "ZADD": (before(zadd), zadd),
    "XADD": (before(xadd), xadd),
    "EVALSHA": (lambda: [encode(b"SCRIPT", b"LOAD", SCRIPT)] + strings() + counters(), evalsha),
    # Lists of fewer than 100 items, which are one row each.
    "LPUSH-small": (small_lists, lambda n: encode(b"LPUSH", small_list(n), b"VXK")),
    "RPOP-small": (small_lists, lambda n: encode(b"RPOP", small_list(n))),
}
