#!/usr/bin/env bash
# Cuts the links between a database and its nodes, each in a network namespace, while a client writes. Needs root and iproute2.
# Where no namespace can be made nothing is tested, and that is said; with PERDURA_REQUIRE_NAMESPACES it is an error.
#
#   PERDURA_MIRROR_ROUNDS=200 scripts/test-mirror-net.sh
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

writer=perdura-w
cleanup() {
    for name in "$writer" perdura-a perdura-b; do
        ip netns del "$name" 2>/dev/null || true
    done
}
trap 'cleanup; rm -f "${said:-}"' EXIT
cleanup

namespaces() {
    ip netns add "$writer" &&
        ip -n "$writer" link set lo up || return 1
    local number=1 node
    for node in a b; do
        ip netns add "perdura-$node" &&
            ip -n "perdura-$node" link set lo up &&
            ip -n "$writer" link add "to-$node" type veth peer name uplink netns "perdura-$node" &&
            ip -n "$writer" addr add "10.231.$number.1/24" dev "to-$node" &&
            ip -n "perdura-$node" addr add "10.231.$number.2/24" dev uplink &&
            ip -n "$writer" link set "to-$node" up &&
            ip -n "perdura-$node" link set uplink up || return 1
        number=$((number + 1))
    done
}
if ! namespaces; then
    echo "NOT TESTED: partitions between a database and its nodes need network namespaces and virtual links here" >&2
    [ -z "${PERDURA_REQUIRE_NAMESPACES:-}" ]
    exit
fi

# As scripts/test.sh builds it: nothing is built again. A filter that no test has is no error to cargo.
said=$(mktemp)
ip netns exec "$writer" cargo test --locked --workspace --features perdura-page/flaws,perdura-archive/flaws --test it -- \
    --ignored --nocapture mirrored_net | tee "$said"
grep -q 'writes acknowledged, 0 lost' "$said"
