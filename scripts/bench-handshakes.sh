#!/usr/bin/env bash
# What TLS handshakes of newcomers do to a client that is connected: the median, the 99th percentile and the worst PING in
# milliseconds, at rest and while waves of clients begin handshakes with an RSA key. Ends with an error if the
# 99th percentile beside them is above MOST milliseconds.
#
#   scripts/bench-handshakes.sh
#   CLIENTS=2000 BITS=4096 MOST=50 scripts/bench-handshakes.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need openssl python3
build
quiet
dir=$(mktemp -d)
port=$(free_port)
tls=$(free_port)
openssl req -x509 -newkey "rsa:${BITS:-2048}" -nodes -days 2 -subj /CN=localhost \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
"$perdura" serve --data "$dir/db" --listen "127.0.0.1:$port" --tls-listen "127.0.0.1:$tls" \
    --tls-cert-file "$dir/cert.pem" --tls-key-file "$dir/key.pem" 2>"$dir/log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
CLIENTS=${CLIENTS:-500} MOST=${MOST:-20} PORT=$port TLS=$tls python3 - <<'PYTHON'
import multiprocessing, os, selectors, socket, ssl, statistics, sys, time

clients, port, tls = (int(os.environ[name]) for name in ("CLIENTS", "PORT", "TLS"))


def ping(seconds):
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            one.sendall(b"PING\r\n")
            one.recv(64)
            took.append((time.monotonic() - begin) * 1000)
            time.sleep(0.0005)
    return sorted(took)


def waves(done, stop):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while not stop.is_set():
        selector, left = selectors.DefaultSelector(), 0
        for _ in range(clients):
            raw = socket.create_connection(("127.0.0.1", tls))
            raw.setblocking(False)
            session = context.wrap_socket(raw, do_handshake_on_connect=False)
            selector.register(session, selectors.EVENT_READ | selectors.EVENT_WRITE)
            left += 1
        while left and not stop.is_set():
            for key, _ in selector.select(0.1):
                try:
                    key.fileobj.do_handshake()
                    with done.get_lock():
                        done.value += 1
                except ssl.SSLWantReadError:
                    selector.modify(key.fileobj, selectors.EVENT_READ)
                    continue
                except ssl.SSLWantWriteError:
                    selector.modify(key.fileobj, selectors.EVENT_WRITE)
                    continue
                except OSError:
                    pass
                selector.unregister(key.fileobj)
                key.fileobj.close()
                left -= 1


def show(name, took, extra=""):
    p99 = took[len(took) * 99 // 100]
    print(f"{name:24} median {statistics.median(took):7.3f}  p99 {p99:7.3f}  worst {took[-1]:7.3f} ms{extra}")
    return p99


for _ in range(500):
    try:
        ping(0.01)
        break
    except OSError:
        time.sleep(0.02)
show("at rest", ping(3))
done, stop = multiprocessing.Value("i", 0), multiprocessing.Event()
storm = multiprocessing.Process(target=waves, args=(done, stop))
storm.start()
time.sleep(0.5)
took = ping(5)
stop.set()
storm.join()
p99 = show(f"{clients} handshakes at once", took, f"  ({done.value} handshakes done)")
if not done.value:
    sys.exit("no handshake was done")
if p99 > float(os.environ["MOST"]):
    sys.exit(f"p99 is above {os.environ['MOST']} ms")
PYTHON
