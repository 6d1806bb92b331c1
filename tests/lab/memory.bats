#!/usr/bin/env bats
# Memory nodes without CPUs, as GPU memory shows up on Grace: they take part in nothing.

load common.bash

setup_file() {
    export LAB_MACHINE=4n+mem
    lab_up
    policy <<<'cpus: {housekeeping: none}'
}
teardown_file() { lab_down; }

@test "the machine has six memory nodes, four with CPUs" {
    contains "$(guest xcloud snapshot)" "6 memory nodes"
    contains "$(guest xcloud snapshot --compare-hwloc)" "hwloc agrees"
}

@test "memory-only nodes are in no plan" {
    out=$(guest "xcloud plan --tasks 8 --json")
    lacks "$out" '"mems": "4'
    lacks "$out" '"mems": "5'
    expect mems "$(grep -o '"mems": "[0-9-]*"' <<<"$out" | sort -u | wc -l)" 4
}

@test "nor in any task's memory policy, by preference, by bind or by interleave" {
    for mode in preferred bind interleave; do
        out=$(as_user "srun --exclusive -n2 -c8 --gres=gpu:8 --xcloud-bind=memory=$mode bash -c 'head -n 1 /proc/self/numa_maps'" 2>/dev/null | sort)
        expect "$mode" "$(grep -cE '(prefer|bind|interleave)[^:]*:(0-1|2-3) ' <<<"$out")" 2
        lacks "$out" ":4"
    done
}

@test "memory=bind says how much there is before the OOM killer does" {
    out=$(as_user srun --exclusive -n8 --gres=gpu:8 --xcloud-bind=memory=bind true 2>&1)
    contains "$out" "memory=bind"
    contains "$out" "MiB"
}
