#!/usr/bin/env bats
# Housekeeping CPUs stay free: by the kernel, for the whole step, whatever the user does.

load common.bash

setup_file() {
    NODES=1 CONF="PrologFlags=Contain" cluster_up
}
teardown_file() { cluster_down; }
setup() { bind_policy <<<'cpus: {housekeeping: "0"}'; }

rest=$(list 1 "$LAST")

@test "no task of a whole-node job has a housekeeping CPU, and the cpuset says so" {
    run -0 as_user srun --exclusive -n1 -c"$CPUS" bash -c \
        "$own_cgroup; $allowed; cat \$f"
    expect mask "${lines[0]}" "$rest"
    expect cpuset "${lines[1]}" "$rest"
}

@test "taskset onto a housekeeping CPU is refused" {
    run -0 as_user srun -n1 -c"$CPUS" bash -c "taskset -c 0 true || echo refused; $allowed"
    contains "$output" "refused"
    expect mask "${lines[-1]}" "$rest"
}

@test "the user cannot write his way out through cgroupfs" {
    run -0 as_user srun -n1 -c"$CPUS" bash -c "$own_cgroup"'
        for up in $d $d/.. $d/../.. $d/../../..; do
            (echo 0 > $up/cpuset.cpus) 2>/dev/null && echo "wrote $up/cpuset.cpus"
        done
        for up in $d/.. $d/../.. $d/../../..; do
            (echo $$ > $up/cgroup.procs) 2>/dev/null && echo "moved to $up"
        done
        for up in $d $d/..; do
            mkdir $up/evil 2>/dev/null || continue
            (echo 0 > $up/evil/cpuset.cpus) 2>/dev/null && echo "evil has CPU 0"
            (cat $d/cpuset.mems > $up/evil/cpuset.mems; echo $$ > $up/evil/cgroup.procs) 2>/dev/null
        done
        taskset -c 0 true 2>/dev/null && echo "escaped"
        (echo $$ > $d/cgroup.procs) 2>/dev/null
        rmdir $d/evil $d/../evil 2>/dev/null
        echo done'
    expect output "$output" "done"
}

@test "a step with --xcloud-bind=off is no way out" {
    run -0 as_user srun -n1 -c"$CPUS" --xcloud-bind=off bash -c "taskset -c 0 true || echo refused; $allowed"
    contains "$output" "refused"
    expect mask "${lines[-1]}" "$rest"
}

@test "nor are an --overlap step and a second step with =off beside the first" {
    cat >"$DIR/home/two.sh" <<EOF
#!/bin/bash
srun -n1 -c$CPUS sleep 2 &
srun --overlap -n1 -c$CPUS --xcloud-bind=off bash -c 'taskset -c 0 true || echo refused-off; $allowed'
srun --overlap -n1 -c$CPUS bash -c 'taskset -c 0 true || echo refused; $allowed'
taskset -c 0 true || echo refused-batch
wait
EOF
    batch --exclusive -N1 -n1 -c"$CPUS" -o "$DIR/home/two.out" two.sh
    out=$(cat "$DIR/home/two.out")
    for word in refused-off "refused
" refused-batch; do contains "$out
" "$word"; done
}

@test "directories made in a step's cpuset before it begins do not stop the narrowing" {
    # cgroup v1: the step's directory is its user's, and his batch script can be there first
    cat >"$DIR/home/contest.sh" <<EOF
#!/bin/bash
$own_cgroup
step=\${d%/step_*}/step_0
( for _ in {1..20000}; do
    mkdir -p "\$step/a/1/2/3/4/5/6/7/8/9/10" 2>/dev/null && echo made && break
done ) &
srun --overlap -n1 -c$CPUS bash -c "taskset -c 0 true || echo refused; $allowed"
kill %1 2>/dev/null
EOF
    batch --exclusive -N1 -n1 -c"$CPUS" -o "$DIR/home/contest.out" contest.sh || true
    out=$(cat "$DIR/home/contest.out")
    [ ! -d /sys/fs/cgroup/cpuset ] || contains "$out" made
    contains "$out" refused
    contains "$out
" "
$rest
"
}

@test "a jobs: entry that the environment picks does not keep housekeeping CPUs in" {
    # on a machine of which the step has a part: min_share would leave it alone, and SLURM_JOB_QOS is
    # the user's to set
    sed -e "s/^cores 1/cores $CPUS/" -e "s/cores=0 /cores=0-$LAST /" \
        -e "s/cores=1 /cores=$CPUS-$((2 * CPUS - 1)) /" \
        "$HERE/../machines/two-node-2cpu.machine" >"$BATS_TEST_TMPDIR/larger"
    "$HERE/../machines/make-machine" "$BATS_TEST_TMPDIR/larger" "$BATS_TEST_TMPDIR/machine"
    xcloud snapshot --machine "$BATS_TEST_TMPDIR/machine" -o "$DIR/nodes/n1/run/xcloud/node.snapshot"
    printf '%s\n' 'version: 1' 'mode: bind' 'defaults:' '  cpus: {housekeeping: "0"}' \
        '  bind: {min_share: none}' 'jobs:' '  - when: {qos: mine}' \
        "    bind: {min_share: $CPUS cores}" | policy
    run -0 as_user env SLURM_JOB_QOS=mine srun -n1 -c"$CPUS" bash -c 'taskset -c 0 true || echo refused'
    rm "$DIR/nodes/n1/run/xcloud/node.snapshot"
    contains "$output" refused
}

@test "--cpu-bind=none and map_cpu onto a housekeeping CPU stay inside" {
    run -0 as_user srun -n1 -c"$CPUS" --cpu-bind=none bash -c "$allowed"
    expect mask "${lines[-1]}" "$rest"
    run -0 as_user srun -n2 -c$HALF --exclusive --cpu-bind=map_cpu:0,$LAST bash -c "$allowed"
    lacks "$output
" $'\n0\n'
}

@test "two tasks where CPU 0 is housekeeping: the launch does not fail with EINVAL" {
    # Slurm sets task 1's mask after task 0 was forked: narrowed too early, that would be EINVAL
    run -0 as_user srun -n2 -c$HALF --exclusive bash -c "$allowed"
    lacks "$output" "Invalid argument"
    expect count "$(grep -c '^[0-9]' <<<"$output")" 2
    lacks "$output
" $'\n0\n'
}

@test "the extern step, where adopted processes land, is narrowed too" {
    as_user srun -n1 -c"$CPUS" --exclusive sleep 3 &
    sleep 1
    job=$(squeue -h -o %i)
    cpus=$(cat $(find /sys/fs/cgroup -path "*n1*/job_$job/step_extern*" \
        \( -path '*/cpuset/*' -name cpuset.cpus -o -path '*/user/cpuset.cpus.effective' \) | head -n 1))
    wait
    expect extern "$cpus" "$rest"
}

@test "a small step that Slurm puts on housekeeping CPUs gets others of its job" {
    run -0 as_user salloc -Q --exclusive -N1 srun --exact -n1 -c1 bash -c "taskset -c 0 true || echo refused; $allowed"
    contains "$output" "Slurm put this step on housekeeping CPUs 0"
    contains "$output" refused
    expect mask "${lines[-1]}" "$LAST"
}

@test "a step on housekeeping CPUs alone is left alone, and told" {
    run -0 as_user srun -n1 -c1 --exact --cpu-bind=none bash -c "$allowed"
    expect mask "${lines[-1]}" 0
    contains "$output" "housekeeping CPUs are not taken out"
}

@test "CpuSpecList is the truth for housekeeping: slurm" {
    bind_policy <<<'cpus: {housekeeping: slurm}'
    mkdir -p "$DIR/nodes/n1/etc/slurm"
    sed 's/^NodeName=n1.*/& CpuSpecList=0/' "$DIR/etc/slurm.conf" >"$DIR/nodes/n1/etc/slurm/slurm.conf"
    rm -f "$DIR/nodes/n1/run/xcloud/node.snapshot"
    run -0 as_user srun -n1 -c"$CPUS" --xcloud-bind=verbose bash -c "$allowed"
    rm -rf "$DIR/nodes/n1/etc/slurm" "$DIR/nodes/n1/run/xcloud/node.snapshot"
    expect mask "${lines[-1]}" "$rest"
    contains "$output" "housekeeping 0 kept free by the step's cpuset"
}

@test "in mode observe nothing is narrowed" {
    printf 'version: 1\nmode: observe\ndefaults:\n  cpus: {housekeeping: "0"}\n' | policy
    run -0 as_user srun -n1 -c"$CPUS" --xcloud-bind=verbose bash -c "$allowed"
    contains "$output" "$(list 0 $LAST)"
    contains "$output" "observe"
}

@test "nothing is drained by any of this" { nodes_idle; }
