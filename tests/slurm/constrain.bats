#!/usr/bin/env bats
# Clusters that are set up otherwise: without cpusets, with task/affinity alone, with an interactive step.

load common.bash

teardown() { cluster_down; }

@test "ConstrainCores=no: bound by affinity, housekeeping avoided, and it says that it can be undone" {
    CONSTRAIN=no NODES=1 cluster_up
    bind_policy <<<'cpus: {housekeeping: none}'
    expect masks "$(masks -N1 -n2 -c$HALF --gres=gpu:2)" "0 $UPPER
1 $LOWER"
    bind_policy <<<'cpus: {housekeeping: "0"}'
    run -0 as_user srun -n1 -c"$CPUS" --gres=gpu:2 bash -c "$allowed; taskset -c 0 true && echo free || echo refused"
    contains "$output" "$(list 1 $LAST)"
    if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then # the step has a cpuset all the same
        contains "$output" refused
    else
        contains "$output" "affinity alone"
        contains "$output" free
    fi
    nodes_idle
}

@test "task/affinity alone: the same" {
    TASKPLUGIN=task/affinity NODES=1 cluster_up
    bind_policy <<<'cpus: {housekeeping: none}'
    expect masks "$(masks -N1 -n2 -c$HALF --gres=gpu:2)" "0 $UPPER
1 $LOWER"
    nodes_idle
}

@test "task/cgroup alone: bound, where Slurm sets no mask of its own" {
    TASKPLUGIN=task/cgroup NODES=1 cluster_up
    bind_policy <<<'cpus: {housekeeping: none}'
    expect masks "$(masks -N1 -n2 -c$HALF --gres=gpu:2)" "0 $UPPER
1 $LOWER"
    bind_policy <<<'cpus: {housekeeping: "0"}'
    run -0 as_user srun --exclusive -n1 -c"$CPUS" bash -c "taskset -c 0 true || echo refused; $allowed"
    contains "$output" refused
    contains "$output" "$(list 1 $LAST)"
    nodes_idle
}

@test "an interactive step keeps all the job's training cores, and the steps in it are bound" {
    CONF="LaunchParameters=use_interactive_step" NODES=1 cluster_up
    bind_policy <<<'cpus: {housekeeping: none}'
    echo "echo \"shell \$($allowed)\"; srun -n2 -c$HALF bash -c 'echo step \$SLURM_PROCID \$($allowed)'" >"$DIR/home/input"
    run -0 bash -c "cd $DIR/home; exec 3>&-; timeout 60 setpriv --reuid nobody --regid nogroup --clear-groups \
        salloc -Q -N1 -n2 -c$HALF --gres=gpu:2 bash <$DIR/home/input"
    contains "$output" "shell $(list 0 $LAST)"
    contains "$output" "step 0 $UPPER"
    contains "$output" "step 1 $LOWER"
    nodes_idle
}

@test "Slurm's housekeeping cores and features: what slurm.conf says of the node is what the plugin knows" {
    NODECONF="CpuSpecList=0 Feature=fast,ib" NODES=1 cluster_up
    mkdir -p "$DIR/nodes/n1/etc/slurm"
    cp "$DIR/etc/slurm.conf" "$DIR/nodes/n1/etc/slurm/slurm.conf"
    policy <<'Y'
version: 1
mode: observe
classes:
  - {name: quick, match: {feature: fast}, mode: bind, cpus: {housekeeping: slurm}}
Y
    run -0 as_user srun -n1 -c$((CPUS - 1)) --xcloud-bind=verbose bash -c "$allowed"
    expect mask "${lines[-1]}" "$(list 1 $LAST)"
    contains "$output" "housekeeping 0 was not given by Slurm"
    contains "$(xcloud job --machine "$DIR/nodes/n1" 1)" "class quick"
    nodes_idle
}
