#!/usr/bin/env bash
# Cuts the links between a database and its nodes, each in a network namespace, while a client writes. Needs root and iproute2.
#
#   PERDURA_MIRROR_ROUNDS=200 scripts/test-mirror-net.sh
set -euo pipefail
cd "$(dirname "$0")/.."

writer=perdura-w
cleanup() {
    for name in "$writer" perdura-a perdura-b; do
        ip netns del "$name" 2>/dev/null || true
    done
}
trap cleanup EXIT
cleanup

cargo test --locked -p perdura-cli --test it --no-run
ip netns add "$writer"
ip -n "$writer" link set lo up
number=1
for node in a b; do
    ip netns add "perdura-$node"
    ip -n "perdura-$node" link set lo up
    ip -n "$writer" link add "to-$node" type veth peer name uplink netns "perdura-$node"
    ip -n "$writer" addr add "10.231.$number.1/24" dev "to-$node"
    ip -n "perdura-$node" addr add "10.231.$number.2/24" dev uplink
    ip -n "$writer" link set "to-$node" up
    ip -n "perdura-$node" link set uplink up
    number=$((number + 1))
done
PERDURA_MIRROR_NET=1 ip netns exec "$writer" cargo test --locked -p perdura-cli --test it -- --nocapture mirrored_net
