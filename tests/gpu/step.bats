#!/usr/bin/env bats
# Steps on a node with real NVIDIA GPUs: who got which GPU and which CPUs, as the driver and the kernel say.
# Not part of ./check, whose machines have no GPU: ./run, or `XC_STAGE=… bats tests/gpu`.

load common.bash

setup_file() { gpu_cluster_up; }
teardown_file() { gpu_cluster_down; }
setup() { bind_policy <<<'cpus: {housekeeping: none}'; }

lines_name_the_gpu() { # SED: behind "task N" and this stands the PCI address that the driver gave the task
    local task bdf
    for task in $(seq 0 $((gpus - 1))); do
        bdf=$(sed -n "s/^task $task$1//p" <<<"$output")
        [ -n "$bdf" ]
        contains "$(awk -v t="$task" '$1 == "n1" && $2 == t' <<<"$output")" "$bdf"
    done
}

@test "the machine's GPUs are those of the driver" {
    run -0 xcloud snapshot --json -o "$DIR/home/snapshot"
    expect count "$(grep -o '"uuid": "GPU-' <<<"$output" | wc -l)" "$gpus"
    for uuid in $(sed -n 's/^GPU UUID: *\t *//p' /proc/driver/nvidia/gpus/*/information); do
        contains "$output" "$uuid"
    done
}

@test "a capture of this machine gives the plan that the machine itself gives" {
    local archive=${XCLOUD_GPU_REPORT:-$DIR/home}/machine.tar.xz policy=$DIR/etc/policy.yaml
    xcloud capture -o "$archive"
    run -0 xcloud plan --policy "$policy" --tasks "$gpus"
    live=$output
    run -0 xcloud plan --policy "$policy" --machine "$archive" --tasks "$gpus"
    expect plan "$output" "$live"
    mkdir "$DIR/home/captured"
    tar -C "$DIR/home/captured" -xf "$archive"
    for secret in $(sed -n 's/^GPU UUID: *\t *//p' /proc/driver/nvidia/gpus/*/information) $(hostname | grep ".\{6\}") \
        $(cat /sys/class/net/*/address | grep -v '^00:00:00:00:00:00$' | sort -u); do
        run grep -rliF -- "$secret" "$DIR/home/captured"
        expect "files with $secret" "$output" ""
    done
    report step "- $(stat -c %s "$archive") bytes of capture"
}

@test "tasks that share all GPUs: each has its own by number, and the line says what the driver says" {
    run -0 as_user srun -n"$gpus" --gres=gpu:"$gpus" --xcloud-bind=verbose bash -c \
        'echo "task $SLURM_PROCID: $(nvidia-smi -i "$SLURM_LOCALID" --query-gpu=uuid,pci.bus_id --format=csv,noheader | tr A-Z a-z)"'
    lines_name_the_gpu ': .*, 0000'
}

@test "each task is told its own GPU, though all read CUDA_VISIBLE_DEVICES=0" {
    run -0 as_user srun -n"$gpus" --gpus-per-task=1 --xcloud-bind=verbose bash -c \
        'echo "task $SLURM_PROCID sees $CUDA_VISIBLE_DEVICES: $(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr A-Z a-z | sed "s/^0000//")"'
    lines_name_the_gpu ' sees 0: '
}

@test "gpus=restrict: a program of a task finds its own GPU alone, by CUDA" {
    run -0 as_user srun -n"$gpus" --gres=gpu:"$gpus" --xcloud-bind=gpus=restrict,verbose bash -c \
        'echo "task $SLURM_PROCID: $(python3 -c "
import ctypes
cuda = ctypes.CDLL(\"libcuda.so.1\")
count, bus = ctypes.c_int(), ctypes.create_string_buffer(32)
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuDeviceGetPCIBusId(bus, 32, 0) == 0
print(count.value, bus.value.decode().lower())")"'
    lines_name_the_gpu ': 1 '
}

@test "devices stay constrained: a step without GPUs opens none" {
    for words in on off; do
        run -0 as_user srun -n1 --xcloud-bind=$words bash -c \
            'for d in /dev/nvidia[0-9]*; do (exec 3<>"$d") 2>/dev/null && echo "opened $d"; done; echo tried'
        contains "$output" tried
        lacks "$output" opened
    done
}

@test "a step without GPUs is placed as one without, though the node has them" {
    run -0 as_user srun -Q --exclusive -n2 -c$((CPUS / 2)) --xcloud-bind=verbose true
    contains "$output" "Rank"
    lacks "$output" 0000:
}

@test "torchrun's workers are bound with no change of the launch line, and NCCL works" {
    has_torch
    run -0 as_user srun -n1 -c"$CPUS" --gres=gpu:"$gpus" python3 -m torch.distributed.run \
        --nproc-per-node="$gpus" allreduce.py
    share=$((CPUS / gpus))
    for rank in $(seq 0 $((gpus - 1))); do
        contains "$output" "worker $rank sum $((gpus * (gpus + 1) / 2)) cpus"
    done
    expect shares "$(grep -c "of $share\$" <<<"$output")" "$gpus"
    expect distinct "$(sed -n 's/.*cpus \([0-9-]*\) of.*/\1/p' <<<"$output" | sort -u | wc -l)" "$gpus"
}

@test "torchrun from a virtual environment: its workers keep it" {
    has_torch
    python3 -m venv --without-pip --system-site-packages "$DIR/home/venv" || skip "no venv module"
    # a venv of a venv does not see what the outer one has: a .pth file says it
    python3 -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
        >"$(echo "$DIR"/home/venv/lib/python3*/site-packages)/outer.pth"
    echo 'import os, sys; print("worker", os.environ["LOCAL_RANK"], sys.prefix, len(os.sched_getaffinity(0)))' \
        >"$DIR/home/where.py"
    run -0 as_user srun -n1 -c"$CPUS" --gres=gpu:"$gpus" "$DIR/home/venv/bin/python3" -m torch.distributed.run \
        --nproc-per-node="$gpus" where.py
    for rank in $(seq 0 $((gpus - 1))); do
        contains "$output" "worker $rank $DIR/home/venv $((CPUS / gpus))"
    done
}

@test "housekeeping on this cgroup version: not onto it, not out of it" {
    bind_policy <<<'cpus: {housekeeping: "0-1"}'
    run -0 as_user srun --exclusive -n1 -c"$CPUS" bash -c "taskset -c 0 true || echo refused; $allowed"
    contains "$output" refused
    contains "$output" "$(list 2 "$LAST")"
    nodes_idle
}

@test "a tree of another root without the topology file: who is inside is told" {
    local topo=$DIR/etc/topo.xml tree=$DIR/home/tree
    bind_policy <<<"cpus: {housekeeping: none}
topo: {file: $topo}"
    xcloud topo generate --policy "$DIR/etc/policy.yaml" -o "$topo"
    install -D "$STAGE/bin/xcloud-inside" "$tree/bin/xcloud-inside"
    mkdir -p "$tree"/{proc,dev,tmp}
    run as_user srun -n1 --gres=gpu:"$gpus" unshare --user --map-root-user --mount --root="$tree" /bin/xcloud-inside
    [ "$status" -ne 0 ]
    contains "$output" "FAIL    inside.topo $topo: NCCL_TOPO_FILE does not open here"
}

@test "what the hooks take here" {
    bind_policy <<<'cpus: {housekeeping: "0"}'
    for _ in 1 2 3; do
        run -0 as_user srun -n"$gpus" --gres=gpu:"$gpus" --xcloud-bind=explain true
        contains "$output" "us in slurmstepd"
        report step "- $(grep -o 'hooks took.*' <<<"$output" | head -n1)"
    done
}
