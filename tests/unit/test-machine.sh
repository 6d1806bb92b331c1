#!/bin/bash
# Do xcloud snapshot and xcloud capture do what their help says, and refuse what they cannot do?
xcloud=${XCLOUD:-$PWD/xcloud}
make_machine=${srcdir:-.}/tests/machines/make-machine
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# is NAME STATUS PATTERN COMMAND…: its status, and what it prints (both streams)
is() {
    local name=$1 status=$2 pattern=$3 output rc
    shift 3
    output=$("$@" 2>&1)
    rc=$?
    # shellcheck disable=SC2053
    if [[ $rc == "$status" && $output == $pattern ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n  expected: %s, status %s\n  actual:   %s, status %s\n' "$name" "$pattern" \
            "$status" "$output" "$rc"
    fi
}

dir=$work/mig-h100
"$make_machine" mig-h100 "$dir" || exit 99
snapshot=$dir/run/xcloud/node.snapshot

is 'a directory gets its snapshot below it' 0 \
    "mig-h100: 32 CPUs, 16 cores, 2 packages, 2 memory nodes, 4 GPUs, 4 network ports (4 active), bare; read in * ms, written to $snapshot" \
    "$xcloud" snapshot --machine "$dir"
is 'the snapshot is readable by all and writable by one' 0 644 stat -c %a "$snapshot"
is 'refresh reads only what changes' 0 '*; refreshed in *' "$xcloud" snapshot --machine "$dir" --refresh
echo '1: DOWN' >"$dir/sys/class/infiniband/mlx5_0/ports/1/state"
is 'refresh sees a port go down' 0 '*4 network ports (3 active)*; refreshed in *' \
    "$xcloud" snapshot --machine "$dir" --refresh
echo other-boot >"$dir/proc/sys/kernel/random/boot_id"
is 'another boot is read in full' 0 '*; read in *' "$xcloud" snapshot --machine "$dir" --refresh
echo garbage >"$snapshot"
is 'so is what is no snapshot' 0 '*; read in *' "$xcloud" snapshot --machine "$dir" --refresh
echo 0-30 >"$dir/sys/devices/system/cpu/online"
is 'so is a machine with a CPU less' 0 '*; read in *' "$xcloud" snapshot --machine "$dir" --refresh
echo 0-31 >"$dir/sys/devices/system/cpu/online"
is 'hwloc agrees' 0 'hwloc agrees*' "$xcloud" snapshot --machine "$dir" --compare-hwloc

mkdir -p "$dir/etc/slurm"
echo 'NodeName=gpu[1-4] Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 CpuSpecList=0-3,16-17' \
    >"$dir/etc/slurm/slurm.conf"
json() {
    "$xcloud" snapshot --machine "$dir" --node gpu1 --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
print(d["node"], len(d["cpus"]), d["slurm_reserved"], d["gpus"][3]["mig"], d["gpus"][3]["numa"],
      d["nics"][0]["state"], ",".join(d["nics"][0]["gpu_paths"]), d["pci"][0]["parent"])'
}
is 'JSON has it all, and what Slurm reserves as OS CPUs' 0 \
    "gpu1 32 0-1,8,16-17,24 True 1 down PIX,NODE,SYS,SYS None" json

echo 'NodeName=gpu[1-4] Sockets=4 CoresPerSocket=8 ThreadsPerCore=2 CoreSpecCount=2' \
    >"$dir/etc/slurm/slurm.conf"
is 'a reservation that does not fit is said, the rest is known' 0 \
    'xcloud: what Slurm reserves is not known: slurm.conf counts 4 sockets*: 32 CPUs, 16 cores*' \
    "$xcloud" snapshot --machine "$dir" --node gpu1
is 'also when it is refreshed' 0 'xcloud: what Slurm reserves is not known*; read in *' \
    "$xcloud" snapshot --machine "$dir" --node gpu1 --refresh
echo 'NodeName=gpu1 CpuSpecList=0-x' >"$dir/etc/slurm/slurm.conf"
is 'so is one that cannot be read' 0 'xcloud: what Slurm reserves is not known*0-x*: 32 CPUs*' \
    "$xcloud" snapshot --machine "$dir" --node gpu1

archive=$work/packed.tar.xz
is 'a machine is packed' 0 "$archive: * bytes*" "$xcloud" capture --machine "$dir" -o "$archive"
is 'and is the same machine' 0 'packed: 32 CPUs, 16 cores*4 GPUs*' \
    "$xcloud" snapshot --machine "$archive" -o "$work/again"
is 'no secret is in it' 1 0 bash -c "xz -dc '$archive' | grep -aciE 'secret-host|SERIAL0|b8:3f:d2|b83f:d2|4c4c4544|5ec2e7a1'"
is 'packing goes to standard output too' 0 '' bash -c "'$xcloud' capture --machine '$dir' -o - | cmp - '$archive'"
is 'hwloc is of no help with an archive' 2 '*no archive*' \
    "$xcloud" snapshot --machine "$archive" --compare-hwloc
is 'an archive has no place for a snapshot' 2 '*say -o FILE*' "$xcloud" snapshot --machine "$archive"

is 'a wrong option is refused' 2 '*--refesh is no option*' "$xcloud" snapshot --refesh
is 'an option without its value too' 2 '*-o needs a value*' "$xcloud" snapshot -o
is 'and a word too much' 2 '*"more" is too much*' "$xcloud" capture more
is 'a machine that is not there' 2 '*nowhere*No such file*' "$xcloud" snapshot --machine "$work/nowhere"
is 'a directory that is no machine' 2 "*is no machine's root*" \
    "$xcloud" snapshot --machine "$work" -o "$work/x"
is 'a file that is no archive' 2 '*cannot read the archive*' "$xcloud" capture --machine "$0" -o "$work/x"
is 'a place that cannot be written' 2 '*cannot make*' "$xcloud" capture --machine "$dir" -o /nowhere/x
is 'nothing half-written stays' 1 '' bash -c "ls '$work' | grep '\.tar\.xz\.'"

printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed -eq 0 ]]
