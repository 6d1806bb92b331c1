#!/usr/bin/env bats
# On a node with real NVIDIA GPUs: the live machine, no stand-ins. Not part of ./check, whose machines have
# no GPU: `XC_STAGE=… bats tests/gpu`.

load ../slurm/common.bash

gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)

setup_file() {
    [ "$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)" -ge 1 ] || skip "no GPU here"
    NODES=1 GPUS=$gpus GPUFILES="/dev/nvidia[0-$((gpus - 1))]" MACHINE= \
        PLUGSTACK="optional $PLUGIN policy=%D/etc/policy.yaml" live_cluster
}
live_cluster() {
    export DIR=/tmp/xcloud-slurm.$BATS_ROOT_PID.gpu
    export SLURM_CONF=$DIR/etc/slurm.conf PLUGSTACK MACHINE NODES GPUS GPUFILES
    "$HERE/cluster" start "$DIR"
    mkdir -m 1777 "$DIR/home"
    rm -f /run/xcloud/node.snapshot
    bind_policy <<<'cpus: {housekeeping: none}'
}
teardown_file() { cluster_down; }

@test "the machine's GPUs are those of the driver" {
    run -0 xcloud snapshot --json -o "$DIR/home/snapshot"
    expect count "$(grep -o '"uuid": "GPU-' <<<"$output" | wc -l)" "$gpus"
    for uuid in $(sed -n 's/^GPU UUID: *\t *//p' /proc/driver/nvidia/gpus/*/information); do
        contains "$output" "$uuid"
    done
}

@test "each task is told its own GPU, though all read CUDA_VISIBLE_DEVICES=0" {
    run -0 as_user srun -n"$gpus" --gpus-per-task=1 --xcloud-bind=verbose bash -c \
        'echo "task $SLURM_PROCID sees $CUDA_VISIBLE_DEVICES: $(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr A-Z a-z | sed "s/^0000//")"'
    for task in $(seq 0 $((gpus - 1))); do
        bdf=$(sed -n "s/^task $task sees 0: //p" <<<"$output")
        [ -n "$bdf" ]
        contains "$(awk -v t="$task" '$1 == "n1" && $2 == t' <<<"$output")" "$bdf"
    done
}

@test "torchrun's workers are bound with no change of the launch line, and NCCL works" {
    python3 -c 'import torch' 2>/dev/null || skip "no PyTorch here"
    cat >"$DIR/home/train.py" <<'PY'
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.full((1 << 20,), float(rank + 1), device="cuda")
dist.all_reduce(x)
cpus = sorted(os.sched_getaffinity(0))
sys.stdout.write(f"worker {rank} sum {x[0].item():.0f} cpus {cpus[0]}-{cpus[-1]} of {len(cpus)}\n")
dist.destroy_process_group()
PY
    run -0 as_user srun -n1 -c"$CPUS" --gres=gpu:"$gpus" python3 -m torch.distributed.run \
        --nproc-per-node="$gpus" train.py
    share=$((CPUS / gpus))
    for rank in $(seq 0 $((gpus - 1))); do
        contains "$output" "worker $rank sum $((gpus * (gpus + 1) / 2)) cpus"
    done
    expect shares "$(grep -c "of $share\$" <<<"$output")" "$gpus"
    expect distinct "$(sed -n 's/.*cpus \([0-9-]*\) of.*/\1/p' <<<"$output" | sort -u | wc -l)" "$gpus"
}

@test "housekeeping on this cgroup version: not onto it, not out of it" {
    bind_policy <<<'cpus: {housekeeping: "0-1"}'
    run -0 as_user srun --exclusive -n1 -c"$CPUS" bash -c "taskset -c 0 true || echo refused; $allowed"
    contains "$output" refused
    contains "$output" "$(list 2 "$LAST")"
    nodes_idle
}

@test "NCCL reads the topology file that the step was given; without it the step is refused" {
    python3 -c 'import torch' 2>/dev/null || skip "no PyTorch here"
    local topo=$DIR/etc/topo.xml
    bind_policy <<<"cpus: {housekeeping: none}
topo: {file: $topo, proof: refuse}"
    xcloud topo generate --policy "$DIR/etc/policy.yaml" -o "$topo"
    run -0 xcloud topo verify --policy "$DIR/etc/policy.yaml" "$topo"
    run -0 as_user env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL srun -n1 -c"$CPUS" --gres=gpu:"$gpus" \
        python3 -m torch.distributed.run --nproc-per-node="$gpus" train.py
    contains "$output" "NCCL_TOPO_FILE set by environment to $topo"
    lacks "$output" "Could not open XML topology file"
    contains "$output" "worker 0 sum"
    rm "$topo"
    run -1 as_user srun -n1 --gres=gpu:"$gpus" echo ran
    contains "$output" "the NCCL topology file $topo cannot be used"
    nodes_idle
}

@test "xcloud nccl finds the library that PyTorch loads" {
    release=$(python3 -c 'import torch; print(".".join(map(str, torch.cuda.nccl.version())))' 2>/dev/null) ||
        skip "no PyTorch here"
    file=$(python3 -c 'import torch, ctypes, re
torch.cuda.nccl.version()
print(re.search(r"\S*libnccl\S*", open("/proc/self/maps").read()).group())')
    run -0 xcloud nccl --library "$file"
    contains "$output" "library $file: $release"
    run -0 xcloud nccl
    contains "$output" ": $release"
}

@test "the GPUs are healthy, as NVML says" {
    run xcloud check --only gpu --all
    echo "$output" | sed 's/^/# /' >&3
    grep -Eq '^PASS +gpu.health: ' <<<"$output"
    grep -Eq '^PASS +gpu.count: ' <<<"$output"
    lacks "$output" "FAIL "
}

@test "what the hooks take here" {
    bind_policy <<<'cpus: {housekeeping: "0"}'
    run -0 as_user srun -n"$gpus" --gres=gpu:"$gpus" --xcloud-bind=explain true
    echo "# $(grep 'hooks took' <<<"$output")" >&3
    contains "$output" "us in slurmstepd"
}
