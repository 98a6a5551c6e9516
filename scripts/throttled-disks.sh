#!/usr/bin/env bash
# Makes disks of a given rate from files: loop devices with ext4, which the kernel throttles. Needs root.
#
#   scripts/throttled-disks.sh COUNT RATE_MB DIR    makes COUNT disks of RATE_MB MB/s, prints their directories
#   scripts/throttled-disks.sh --remove DIR         unmounts them and removes their files
#
#   SIZE_MB=6000 scripts/throttled-disks.sh 4 29 DIR    each disk has this size; files are sparse [default: 6000]
#
# The throttle is that of the blkio cgroup (version 1), or io.max (version 2). With version 1 it is set in the cgroup of
# this script, so run the database in the same one. With version 2, DIR/cgroup names a cgroup: start the database with
# its process in there. Each disk is read with dd before it is used: a disk that is not slow is an error.
set -Eeuo pipefail

die() {
    echo "$0: $*" >&2
    exit 1
}

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is needed: apt-get install util-linux e2fsprogs coreutils"
    done
}

# Prints the directory of this process in the hierarchy of the blkio cgroup, or fails.
blkio() {
    local mount path
    mount=$(awk '$3 == "cgroup" && $4 ~ /(^|,)blkio(,|$)/ { print $2; exit }' /proc/mounts)
    path=$(sed -n 's/^[0-9]*:\([^:]*,\)\{0,1\}blkio\(,[^:]*\)\{0,1\}:\(.*\)$/\3/p' /proc/self/cgroup)
    [ -n "$mount" ] || return 1
    path=$mount${path%/}
    [ -w "$path/blkio.throttle.read_bps_device" ] || return 1
    echo "$path"
}

# Prints a new cgroup of version 2 with the controller for I/O, or fails.
unified() {
    local mount
    mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$mount" ] && grep -qw io "$mount/cgroup.controllers" 2>/dev/null || return 1
    echo +io >"$mount/cgroup.subtree_control" 2>/dev/null || return 1
    mkdir -p "$mount/perdura-disks" 2>/dev/null || return 1
    echo "$mount/perdura-disks"
}

# Throttles the device $1 (major:minor) to $2 bytes a second. 0: no limit.
throttle() {
    local group way
    if group=$(blkio); then
        for way in read write; do
            echo "$1 $2" >"$group/blkio.throttle.${way}_bps_device"
        done
    elif group=$(unified); then
        [ "$2" -gt 0 ] && echo "$1 rbps=$2 wbps=$2" >"$group/io.max" || echo "$1 rbps=max wbps=max" >"$group/io.max"
    else
        return 1
    fi
}

# Runs a program where the throttle applies.
throttled() {
    local group
    if blkio >/dev/null; then
        "$@"
    else
        group=$(unified)
        (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@")
    fi
}

# Fails if reading the disk at $1 does not take at least 80 % of the time that its rate $2 (MB/s) needs, or takes twice.
verify() {
    local file=$1/verify begin end took least
    throttled dd if=/dev/zero of="$file" bs=1M count=32 oflag=direct status=none
    begin=$(date +%s%N)
    throttled dd if="$file" of=/dev/null bs=1M iflag=direct status=none
    end=$(date +%s%N)
    rm -f "$file"
    took=$(((end - begin) / 1000000))
    least=$((32 * 1048576 / $2 / 1000))
    echo "$1: $((33554432 / (took > 0 ? took : 1) / 1000)) MB/s" >&2
    [ "$took" -ge $((least * 8 / 10)) ] || die "$1 is not throttled: 33.6 MB take $took ms, not $least"
    [ "$took" -le $((least * 2)) ] || die "$1 is slower than its rate: 33.6 MB take $took ms, not $least. The disk below is too slow or busy"
}

make() {
    local count=$1 rate=$2 dir=$3 number device size=${SIZE_MB:-6000}
    mkdir -p "$dir"
    [ -z "$(ls -A "$dir")" ] || die "$dir is not empty; $0 --remove $dir removes earlier disks"
    trap 'remove "$dir"' ERR
    for number in $(seq 1 "$count"); do
        truncate -s "${size}M" "$dir/file$number"
        device=$(losetup -f --show --direct-io=on "$dir/file$number") || {
            remove "$dir"
            die "no loop device for $dir/file$number; run this as root, where /dev/loop-control is there"
        }
        mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$device"
        mkdir "$dir/disk$number"
        mount "$device" "$dir/disk$number"
        throttle "$(cat "/sys/block/${device#/dev/}/dev")" $((rate * 1000000))
        # In a subshell, so that the end of a check does not end this script before it removes the disks.
        (trap - ERR; verify "$dir/disk$number" "$rate") || {
            remove "$dir"
            exit 1
        }
        echo "$dir/disk$number"
    done
    blkio >/dev/null || unified >"$dir/cgroup"
}

remove() {
    local dir=$1 disk device
    trap - ERR
    for disk in "$dir"/disk*; do
        [ -d "$disk" ] || continue
        ! mountpoint -q "$disk" || umount "$disk"
        rmdir "$disk"
    done
    for disk in "$dir"/file*; do
        [ -f "$disk" ] || continue
        for device in $(losetup -j "$disk" | cut -d: -f1); do
            throttle "$(cat "/sys/block/${device#/dev/}/dev")" 0 || true
            losetup -d "$device"
        done
        rm "$disk"
    done
    rm -f "$dir/cgroup"
    rmdir "$dir" 2>/dev/null || true
}

[ $# -gt 0 ] || usage
if [ "$1" = --remove ]; then
    [ $# -eq 2 ] || usage
    [ -d "$2" ] || die "$2 does not exist: there are no disks to remove"
    [ "$(id -u)" -eq 0 ] || die "root is needed to unmount disks"
    remove "$(cd "$2" && pwd)"
    exit 0
fi
[ $# -eq 3 ] || usage
[[ $1 =~ ^[1-9][0-9]?$ ]] || die "COUNT is $1; give a number from 1 to 99"
[[ $2 =~ ^[1-9][0-9]{0,4}$ ]] || die "RATE_MB is $2; give the rate in MB/s, from 1 to 99999"
[ "$(id -u)" -eq 0 ] || die "root is needed to mount disks"
[ -e /dev/loop-control ] || die "there is no /dev/loop-control: load the module loop, or use a machine with it"
need losetup mkfs.ext4 mount umount mountpoint dd truncate
blkio >/dev/null || unified >/dev/null || die "no cgroup throttles disks here: neither a writable blkio.throttle.read_bps_device nor the controller io"
mkdir -p "$3"
make "$1" "$2" "$(cd "$3" && pwd)"
