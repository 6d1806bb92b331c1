#!/usr/bin/env bats
# Does keeping the host's work off a job's cores help a training loop? Measured, not judged: a loop whose
# batches CPU-heavy data loaders make, while daemons of the host wake together on every core; then with the
# same daemons on the housekeeping CPUs and the job kept off those; and without daemons, as the bound of
# what can be won. Rounds of all three, so that what drifts drifts for all.

load common.bash

HOUSEKEEPING=2           # CPUs
ROUNDS=${ROUNDS:-3}
STEPS=${STEPS:-400}
BUSY=50 PERIOD=500       # ms; 10 % of each CPU

setup_file() {
    gpu_cluster_up
    has_torch
    [ "$CPUS" -ge 8 ] || skip "fewer than 8 CPUs"
}
teardown_file() { gpu_cluster_down; }

train() { # SCENARIO HOUSEKEEPING WORDS: a run beside noise.py with the arguments NOISE, if any
    local scenario=$1 noise= line
    bind_policy <<<"cpus: {housekeeping: $2}"
    if [ -n "$NOISE" ]; then
        python3 "$GPU_TESTS/noise.py" $NOISE 3>&- &
        noise=$!
    fi
    line=$(as_user srun -Q -N1 -n1 -c"$CPUS" --gres=gpu:1 --xcloud-bind="$3" \
        python3 train.py "$STEPS" $((CPUS - HOUSEKEEPING - 1)) 2>&1 | tee "$DIR/home/train.log" | grep '^steps') ||
        cat "$DIR/home/train.log"
    [ -z "$noise" ] || kill "$noise"
    [ -n "$line" ]
    set -- $line
    report stalls "| $round | $scenario | $4 | $6 | $8 | ${10} | ${12} | ${14} of $2 |"
}

@test "steps of a training loop beside noisy daemons, before and after" {
    local round all=0-$LAST house=0-$((HOUSEKEEPING - 1))
    report stalls "| round | what | p50 | p90 | p99 | longest | mean | steps of 1.2 times the p50 |"
    report stalls "|---|---|---|---|---|---|---|---|"
    for round in $(seq "$ROUNDS"); do
        NOISE="$all $BUSY $PERIOD" train "daemons on all CPUs, no binding" none off
        NOISE="$all $BUSY $PERIOD $house" train "daemons on CPUs $house, job kept off them" "\"$house\"" on
        NOISE= train "no daemons, no binding" none off
    done
}
