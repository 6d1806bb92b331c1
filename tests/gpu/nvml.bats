#!/usr/bin/env bats
# NVIDIA's driver and its library, well and in every kind of trouble: the deadline holds, and nothing is
# drained for what cannot be known.

load common.bash

setup_file() {
    gpu_cluster_up
    export ROOT=$DIR/nodes/n1 LIBRARY
    LIBRARY=$(ldconfig -p | sed -n 's/.*libnvidia-ml.so.1 (.*x86-64.*=> //p' | head -n1)
    mkdir -p "$ROOT/etc/xcloud" "$ROOT/var/lib/xcloud"
    cat >"$ROOT/etc/xcloud/policy.yaml" <<YAML
version: 1
mode: enforce
breaker: { cluster: 1, class: 1, job: 1 }
defaults:
  programs: { jitter: 1s }
  expect: { gpus: { count: $gpus } }
  checks: { gpu.count: drain, gpu.health: drain, gpu.nvlink: drain, gpu.fabric: drain, gpu.driver: drain }
YAML
}
teardown_file() { gpu_cluster_down; }
setup() {
    rm -rf "$ROOT"/run/xcloud/*
    scontrol update nodename=n1 state=resume 2>/dev/null || true
    xcloud policy arm --prefix "$ROOT" >/dev/null
}

check() { xcloud check --policy "$ROOT/etc/xcloud/policy.yaml" "$@"; }
program() { # prolog|health|epilog: as slurmd starts it; $output has what it said
    SLURMD_NODENAME=n1 SLURM_JOB_ID=1 SLURM_JOB_GPUS=$(seq -s, 0 $((gpus - 1))) \
        timeout 60 "$STAGE/sbin/xcloud-$1" --prefix "$ROOT"
}
state() { sinfo -h -N -o %T | tr -d "*"; }
ms() { echo $((($(date +%s%N) - $1) / 1000000)); }

# What the check and a whole prolog do in some trouble: WANTED-VERDICT WANTED-STATE WHAT [ENV…]
trouble() {
    local verdict=$1 wanted=$2 what=$3 start
    shift 3
    start=$(date +%s%N)
    run env "$@" "$STAGE/bin/xcloud" check --policy "$ROOT/etc/xcloud/policy.yaml" --only gpu.health --all
    report trouble "| $what | $(grep gpu.health <<<"$output") | $(ms "$start") ms |"
    grep -Eq "^$verdict +gpu.health" <<<"$output"
    start=$(date +%s%N)
    run env SLURMD_NODENAME=n1 SLURM_JOB_ID=1 SLURM_JOB_GPUS=0 "$@" \
        timeout 60 "$STAGE/sbin/xcloud-prolog" --prefix "$ROOT"
    report trouble "| … its prolog | exit $status, node $(state) | $(ms "$start") ms |"
    expect state "$(state)" "$wanted"
}

@test "the GPUs are healthy, as NVML says" {
    run check --only gpu --all
    echo "$output" | sed 's/^/# /' >&3
    grep -Eq '^PASS +gpu.health: ' <<<"$output"
    grep -Eq '^PASS +gpu.count: ' <<<"$output"
    lacks "$output" "FAIL "
}

@test "what each check of the GPUs takes" {
    for id in $(xcloud check --list | awk '$2 ~ /^gpu\./ { print $2 }'); do
        verdict=$(check --only "$id" --all | head -n1)
        read -r wall cpu <<<"$(python3 "$GPU_TESTS/measure.py" 5 "$STAGE/bin/xcloud" check \
            --policy "$ROOT/etc/xcloud/policy.yaml" --only "$id")"
        report checks "| $id | ${verdict%% *} | $wall ms | $cpu ms |"
    done
}

@test "what the whole programs take" {
    local row
    for row in "prolog, with nothing kept" health "prolog, with what health has kept" epilog; do
        read -r wall cpu <<<"$(SLURMD_NODENAME=n1 SLURM_JOB_ID=1 SLURM_JOB_GPUS=0 \
            python3 "$GPU_TESTS/measure.py" 11 "$STAGE/sbin/xcloud-${row%%,*}" --prefix "$ROOT")"
        report programs "| $row | $wall ms | $cpu ms |"
    done
    expect state "$(state)" idle
}

# A mount namespace in which the library's directory has everything but it.
without_library='dir=$1 all=$2/all some=$2/some
    shift 2
    mkdir -p "$all" "$some"
    mount --bind "$dir" "$all"
    for file in "$all"/*; do
        case $file in *libnvidia-ml*) ;; *) ln -sf "$file" "$some/" ;; esac
    done
    mount --bind "$some" "$dir"
    exec "$@"'

@test "no library: nobody knows, nothing is drained" {
    trouble UNKNOWN idle "no libnvidia-ml" unshare --mount bash -ec "$without_library" -- "$(dirname "$LIBRARY")" "$DIR"
}

@test "GPUs that do not answer: the deadline holds, nothing is drained" {
    command -v cc >/dev/null || skip "no C compiler"
    cc -shared -fPIC -o "$DIR/hang.so" "$GPU_TESTS/hang.c"
    trouble UNKNOWN idle "every ioctl hangs" LD_PRELOAD="$DIR/hang.so"
}

@test "the devices are closed, as in a job without GPUs: no failure" {
    start=$(date +%s%N)
    run as_user srun -Q -n1 "$STAGE/bin/xcloud" check --only gpu.health --all
    report trouble "| devices closed (a step without GPUs) | $(grep gpu.health <<<"$output") | $(ms "$start") ms with srun |"
    grep -q "^UNKNOWN gpu.health: NVML knows 0 of the $gpus GPUs that are on PCI; $gpus are closed" <<<"$output"
}

@test "a library of another release than the driver: no CUDA program starts, the node is drained" {
    version=$(cat /sys/module/nvidia/version)
    other=${version%?}$(((${version: -1} + 1) % 10))
    mkdir -p "$DIR/other"
    LC_ALL=C sed "s/${version//./\\.}/$other/g" "$LIBRARY" >"$DIR/other/libnvidia-ml.so.1"
    trouble FAIL drained "libnvidia-ml $other, driver $version" LD_LIBRARY_PATH="$DIR/other"
    contains "$(sinfo -h -N -o %E)" "different versions"
}

@test "a library that is cut short kills who loads it: that is the child, and unknown" {
    mkdir -p "$DIR/short"
    head -c 100000 "$LIBRARY" >"$DIR/short/libnvidia-ml.so.1"
    trouble UNKNOWN idle "half a libnvidia-ml" LD_LIBRARY_PATH="$DIR/short"
}

@test "a GPU that is missing does drain: the way there works" {
    sed -i "s/count: $gpus/count: $((gpus + 1))/" "$ROOT/etc/xcloud/policy.yaml"
    setup
    run -1 program prolog
    sed -i "s/count: $((gpus + 1))/count: $gpus/" "$ROOT/etc/xcloud/policy.yaml"
    contains "$(sinfo -h -N -o '%T %E')" "drained xcloud: gpu.count: $gpus GPU"
    scontrol update nodename=n1 state=resume
}
