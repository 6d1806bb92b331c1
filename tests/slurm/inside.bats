#!/usr/bin/env bats
# xcloud check --inside: what a process of a real job sees, as its user.

load common.bash

setup_file() { NODES=1 cluster_up; }
teardown_file() { cluster_down; }
setup() { bind_policy <<<'cpus: {housekeeping: none}'; }

inside() { # SRUN-ARGUMENTS… -- CHECK-ARGUMENTS…
    local srun=()
    while [ "$1" != -- ]; do srun+=("$1"); shift; done
    shift
    as_user srun -Q "${srun[@]}" xcloud check --inside --deadline 20 "$@"
}

@test "each task sees the CPUs that it was given, and no more" {
    run -0 inside -N1 -n2 -c$HALF --gres=gpu:2 -l -- --only inside.affinity
    contains "$output" "0: PASS    inside.affinity cpu$UPPER: "
    contains "$output" "1: PASS    inside.affinity cpu$LOWER: "
}

@test "a job of several tasks without an address to meet at is told" {
    run -0 inside -N1 -n2 -- --only inside.rendezvous
    contains "$output" "WARN    inside.rendezvous: MASTER_ADDR is not set; want MASTER_ADDR and MASTER_PORT"
    run -0 as_user env MASTER_ADDR=n1 MASTER_PORT=29500 srun -Q -N1 -n2 xcloud check --inside --only inside.rendezvous
    contains "$output" "PASS    inside.rendezvous: MASTER_ADDR n1, MASTER_PORT 29500"
}

@test "a topology file that does not open where the task runs fails, and says so" {
    run -1 as_user env NCCL_TOPO_FILE=/no/such.xml srun -Q -N1 -n1 xcloud check --inside --brief
    contains "$output" "inside.topo /no/such.xml: NCCL_TOPO_FILE does not open here: it is not there"
}

@test "each of NCCL's variables is there with the place that says it" {
    run as_user env NCCL_DEBUG=WARN srun -Q -N1 -n1 xcloud check --inside
    contains "$output" "NCCL_DEBUG=WARN  (environment)"
}

@test "the prescreen's steps have their verdicts inside, too" {
    run inside -N1 -n1 -- --exemplar
    [ "$status" -le 1 ]
    for step in 1a 1b 1c 2 3 4 5 6 7 8 9 10 11 12 13; do
        grep -qE "^$step +(PASS|WARN|FAIL|UNKNOWN|N/A) " <<<"$output"
    done
}
