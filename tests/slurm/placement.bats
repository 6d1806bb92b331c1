#!/usr/bin/env bats
# Who goes where, in a real step: the kernel's answer against what was asked and what was said.

load common.bash

setup_file() {
    NODES=2 cluster_up
    bind_policy <<<'cpus: {housekeeping: none}'
}
teardown_file() { cluster_down; }
setup() { bind_policy <<<'cpus: {housekeeping: none}'; }

@test "without any option each task runs on the cores of its own GPU" {
    expect masks "$(masks -N1 -n2 -c$HALF --gres=gpu:2)" "0 $UPPER
1 $LOWER"
}

@test "both nodes are bound alike" {
    expect masks "$(masks -N2 -n4 -c$HALF --gres=gpu:2 | cut -d' ' -f2 | sort | uniq -c | sed 's/^ *//' | sort)" \
        "$(printf '2 %s\n2 %s\n' "$LOWER" "$UPPER" | sort)"
}

@test "tasks that see one GPU each are bound by the device that they can open" {
    # CUDA_VISIBLE_DEVICES is 0 in both tasks: the numbers lie, the device files do not
    run -0 masks -N1 -n2 -c$HALF --gpus-per-task=1
    contains "$output" "0 $UPPER"
    contains "$output" "1 $LOWER"
    contains "$output" "allow-task-sharing"
}

@test "tasks with their GPUs in reverse order are bound in reverse" {
    expect masks "$(masks -N1 -n2 -c$HALF --gpus-per-task=1 --gpu-bind=map_gpu:1,0 2>/dev/null)" "0 $LOWER
1 $UPPER"
}

@test "without GPUs tasks are spread over the NUMA nodes" {
    # on cgroup v2 Slurm 22.05 denies nothing to a job that asked for no GPU: the files do it here
    chmod 0 "$DIR"/nodes/*/dev/nvidia*
    got=$(masks -N1 -n2 -c$HALF)
    chmod 666 "$DIR"/nodes/*/dev/nvidia*
    expect masks "$got" "0 $LOWER
1 $UPPER"
}

@test "a task with all GPUs has all cores, and a plan for its workers" {
    run -0 as_user srun -N1 -n1 -c"$CPUS" --gres=gpu:2 bash -c "$allowed; env | grep -E '^(XCLOUD_PLAN|PYTHON_EXEC)='"
    expect mask "${lines[0]}" "$(list 0 $LAST)"
    contains "$output" "XCLOUD_PLAN=1;cpus=$UPPER"
    contains "$output" "PYTHON_EXEC=$STAGE/bin/xcloud-exec"
}

@test "torchrun: auto can be switched off" {
    printf 'cpus: {housekeeping: none}\nbind: {torchrun: off}\n' | bind_policy
    run -0 as_user srun -N1 -n1 -c"$CPUS" --gres=gpu:2 env
    lacks "$output" PYTHON_EXEC=
}

@test "workers started through PYTHON_EXEC are bound to the share of their rank" {
    cat >"$DIR/home/launcher.py" <<'PY'
import os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
python = os.environ.get("PYTHON_EXEC", sys.executable)
for rank in range(2):
    env = dict(os.environ, LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    subprocess.run([python, "-u", here + "/worker.py"], env=env, check=True)
PY
    echo 'import os, sys; print(os.environ["LOCAL_RANK"], sorted(os.sched_getaffinity(0)), sys.argv[0][-9:])' \
        >"$DIR/home/worker.py"
    run -0 as_user srun -N1 -n1 -c"$CPUS" --gres=gpu:2 python3 launcher.py
    expect workers "$output" "0 $(python3 -c "print(list(range($HALF, $CPUS)))") worker.py
1 $(python3 -c "print(list(range(0, $HALF)))") worker.py"
}

@test "verbose prints what /proc says" {
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=verbose bash -c "echo \"proc \$SLURM_PROCID \$($allowed)\""
    for rank in 0 1; do
        mask=$(awk -v r=$rank '$1 == "proc" && $2 == r {print $3}' <<<"$output")
        row=$(awk -v r=$rank '$1 == "n1" && $2 == r' <<<"$output")
        contains "$row" " $mask "
    done
    contains "$output" "CPU Affinity"
    contains "$output" "mlx5_0 PIX"
}

@test "quiet says nothing when all is well" {
    run -0 --separate-stderr as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind true
    expect stderr "$stderr" ""
}

@test "memory prefers the task's NUMA node where the host has it, and is left alone where it has not" {
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 bash -c 'echo $SLURM_PROCID $(head -n1 /proc/self/numa_maps | cut -d" " -f2)'
    contains "$output" "0 default"
    contains "$output" "1 prefer"
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=verbose true
    contains "$output" "preferred 0"
}

@test "memory=none leaves memory alone, memory=bind binds it" {
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=memory=none bash -c 'head -n1 /proc/self/numa_maps | cut -d" " -f2'
    expect policy "$output" "default
default"
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=memory=bind bash -c 'echo $SLURM_PROCID $(head -n1 /proc/self/numa_maps | cut -d" " -f2)'
    contains "$output" "1 bind:0"
}

@test "an explicit --cpu-bind is kept without the option, and loses to it" {
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=map_cpu:0,$LAST
    contains "$output" "0 0"
    contains "$output" "1 $LAST"
    contains "$output" "--cpu-bind=map_cpu is kept"
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=map_cpu:0,$LAST --xcloud-bind
    contains "$output" "0 $UPPER"
    contains "$output" "replaces --cpu-bind=map_cpu"
}

@test "--cpu-bind=none is kept and said" {
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=none
    contains "$output" "0 $(list 0 $LAST)"
    contains "$output" "--cpu-bind=none is kept"
}

@test "a recipe's own numactl still runs, and is named" {
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 numactl --cpunodebind=0 --membind=0 bash -c "echo ran"
    expect count "$(grep -c '^ran$' <<<"$output")" 2
    contains "$output" "the program is numactl"
}

@test "a batch script and the steps in it inherit the words, and a step can say otherwise" {
    cat >"$DIR/home/job.sh" <<EOF
#!/bin/bash
echo "batch \$($allowed)"
srun -n2 -c$HALF bash -c 'echo "inner \$SLURM_PROCID \$($allowed)"'
srun -n2 -c$HALF --xcloud-bind=off --cpu-bind=none bash -c 'echo "off \$SLURM_PROCID \$($allowed)"'
EOF
    batch -N1 -n2 -c$HALF --gres=gpu:2 -o "$DIR/home/job.out" --xcloud-bind=verbose job.sh
    out=$(cat "$DIR/home/job.out")
    contains "$out" "batch $(list 0 $LAST)"
    contains "$out" "inner 0 $UPPER"
    contains "$out" "inner 1 $LOWER"
    contains "$out" "CPU Affinity"
    contains "$out" "off 0 $(list 0 $LAST)"
}

@test "salloc's words reach its steps" {
    run -0 as_user salloc -Q -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=verbose srun -c$HALF bash -c "echo \$SLURM_PROCID \$($allowed)"
    contains "$output" "0 $UPPER"
    contains "$output" "CPU Affinity"
}

@test "an --overlap step is bound like the first" {
    cat >"$DIR/home/overlap.sh" <<EOF
#!/bin/bash
srun -n2 -c$HALF sleep 2 &
srun --overlap -n2 -c$HALF bash -c 'echo "over \$SLURM_PROCID \$($allowed)"'
wait
EOF
    batch -N1 -n2 -c$HALF --gres=gpu:2 -o "$DIR/home/overlap.out" overlap.sh
    contains "$(cat "$DIR/home/overlap.out")" "over 0 $UPPER"
}

@test "a heterogeneous job's components are bound each" {
    run -0 as_user srun -N1 -n1 --gres=gpu:1 bash -c "echo a \$($allowed)" : -N1 -n1 --gres=gpu:1 bash -c "echo b \$($allowed)"
    expect tasks "$(grep -cE '^[ab] [0-9]+$' <<<"$output")" 2
    nodes_idle
}

@test "all tasks of both nodes plan alike, however quick they are" {
    for _ in 1 2 3 4 5; do
        run -0 as_user srun -N2 -n4 -c$HALF --gres=gpu:2 --xcloud-bind=dry true
        lacks "$output" "0,1"
        expect rows "$(grep -cE '^ +[01]  [01] 0000:' <<<"$output")" 2
    done
}

@test "more tasks than CPUs: every task has one" {
    run -0 as_user salloc -Q -N1 --exclusive --gres=gpu:2 srun -n64 --overcommit bash -c "echo \$SLURM_PROCID \$($allowed)"
    expect count "$(grep -cE '^[0-9]+ [0-9]+$' <<<"$output")" 64
    lacks "$output" "cannot be bound"
}

@test "jobs side by side on one node do not get each other's CPUs" {
    as_user srun -N1 -w n1 -n1 -c$HALF --gres=gpu:1 bash -c "$allowed; sleep 3" >"$DIR/home/first" &
    sleep 1
    second=$(as_user srun -N1 -w n1 -n1 -c$HALF --gres=gpu:1 bash -c "$allowed")
    wait
    first=$(cat "$DIR/home/first")
    disjoint "$first" "$second"
}

@test "variables of the policy: default keeps the user's, force replaces, forbid takes away" {
    cat <<'Y' | bind_policy
cpus: {housekeeping: none}
env:
  NCCL_DEBUG: {value: WARN, set: default}
  NCCL_IB_QPS_PER_CONNECTION: {value: 4, set: force}
  NCCL_ALGO: {set: forbid}
  MY_RANK: {value: "${local_rank}"}
nics: {export: [NCCL_IB_HCA, UCX_NET_DEVICES]}
Y
    run -0 as_user env NCCL_DEBUG=INFO NCCL_IB_QPS_PER_CONNECTION=1 NCCL_ALGO=Ring \
        srun -N1 -n2 -c$HALF --gres=gpu:2 bash -c 'echo $SLURM_PROCID $NCCL_DEBUG $NCCL_IB_QPS_PER_CONNECTION [$NCCL_ALGO] $MY_RANK $NCCL_IB_HCA $UCX_NET_DEVICES'
    contains "$output" "0 INFO 4 [] 0 =mlx5_0:1,mlx5_1:1 mlx5_0:1"
    contains "$output" "1 INFO 4 [] 1 =mlx5_0:1,mlx5_1:1 mlx5_1:1"
}

@test "an inner srun computes its own: what an outer step set is not taken for the user's" {
    cat <<'Y' | bind_policy
cpus: {housekeeping: none}
env: {MY_RANK: "${local_rank}"}
Y
    cat >"$DIR/home/inner.sh" <<'EOF'
#!/bin/bash
echo "batch MY_RANK=$MY_RANK"
srun -n2 bash -c 'echo "rank $SLURM_PROCID MY_RANK=$MY_RANK"'
MY_RANK=mine srun -n1 bash -c 'echo "user MY_RANK=$MY_RANK"'
EOF
    batch -N1 -n2 -o "$DIR/home/inner.out" inner.sh
    out=$(cat "$DIR/home/inner.out")
    contains "$out" "batch MY_RANK=0"
    contains "$out" "rank 1 MY_RANK=1"
    contains "$out" "user MY_RANK=mine"
}

@test "a job that is suspended and resumed keeps its masks" {
    as_user srun -N1 -n2 -c$HALF --gres=gpu:2 bash -c "touch up.\$SLURM_PROCID; sleep 2; echo \$SLURM_PROCID \$($allowed)" >"$DIR/home/suspended" &
    until [ -e "$DIR/home/up.0" ] && [ -e "$DIR/home/up.1" ]; do sleep 0.1; done
    job=$(squeue -h -o %i)
    scontrol suspend "$job"
    scontrol resume "$job"
    wait
    expect masks "$(sort "$DIR/home/suspended")" "0 $UPPER
1 $LOWER"
}

@test "a job that is requeued is bound again" {
    printf '#!/bin/bash\nsrun -n2 -c%s bash -c "echo run\\$SLURM_RESTART_COUNT \\$SLURM_PROCID \\$(%s)"\nsleep 3\n' \
        "$HALF" "${allowed//\$/\\\$}" >"$DIR/home/again.sh"
    id=$(as_user sbatch --parsable --requeue --open-mode=append -N1 -n2 -c$HALF --gres=gpu:2 -o "$DIR/home/again.out" again.sh)
    for _ in $(seq 50); do [ -s "$DIR/home/again.out" ] && break; sleep 0.1; done
    scontrol requeue "$id"
    for _ in $(seq 100); do # Slurm holds a requeued job back for two minutes
        scontrol update jobid="$id" starttime=now 2>/dev/null || true
        grep -q '^run1 0' "$DIR/home/again.out" && break
        sleep 0.3
    done
    scancel "$id" || true # it may have ended
    contains "$(cat "$DIR/home/again.out")" "run1 0 $UPPER"
}

@test "two hundred steps leave no cgroup, no file beyond the kept records, no growing slurmd" {
    cat >"$DIR/home/many.sh" <<'EOF'
#!/bin/bash
for i in $(seq 10); do srun -n2 true; done
ps -o rss= -p $(cat $1/run/slurmd-n1.pid) > $1/home/rss.first
for i in $(seq 190); do srun -n2 true; done
ps -o rss= -p $(cat $1/run/slurmd-n1.pid) > $1/home/rss.last
EOF
    batch -w n1 -N1 -n2 -c$HALF --gres=gpu:2 -o "$DIR/home/many.out" many.sh "$DIR"
    nodes_idle
    lacks "$(cat "$DIR/home/many.out")" xcloud
    lacks "$(cat "$DIR/home/many.out")" error
    expect cgroups "$(find /sys/fs/cgroup -path '*slurm_n1*' -name 'job_*' 2>/dev/null)" ""
    files=$(find "$DIR/nodes/n1/run/xcloud" -type f | wc -l)
    [ "$files" -le 100 ] || { echo "$files files"; false; }
    first=$(cat "$DIR/home/rss.first") last=$(cat "$DIR/home/rss.last")
    [ "$last" -lt $((first + 2048)) ] || { echo "slurmd grew from $first to $last KiB"; false; }
}

@test "a record shows a running and an ended step" {
    as_user srun -N1 -n2 -c$HALF --gres=gpu:2 sleep 2 &
    sleep 1
    job=$(squeue -h -o %i)
    run -0 xcloud job --machine "$DIR/nodes/n1" "$job"
    contains "$output" "running"
    contains "$output" " $UPPER "
    wait
    run -0 xcloud job --machine "$DIR/nodes/n1" "$job"
    contains "$output" "ended"
}
