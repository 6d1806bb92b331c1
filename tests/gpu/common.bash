# What the tests on real GPUs share: the live machine with one Slurm node that has its real GPUs, and
# lines for the report of ./run.

. "$(dirname "${BASH_SOURCE[0]}")/../slurm/common.bash"

GPU_TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)

gpu_cluster_up() {
    [ "$gpus" -ge 1 ] || skip "no GPU here"
    export DIR=/tmp/xcloud-slurm.$BATS_ROOT_PID.$(basename "$BATS_TEST_FILENAME" .bats)
    export NODES=1 GPUS=$gpus GPUFILES="/dev/nvidia[0-$((gpus - 1))]" MACHINE=
    export PLUGSTACK=${PLUGSTACK-"optional $PLUGIN policy=%D/etc/policy.yaml"} SLURM_CONF=$DIR/etc/slurm.conf
    "$HERE/cluster" start "$DIR"
    mkdir -m 1777 "$DIR/home"
    cp "$GPU_TESTS"/*.py "$DIR/home"
    rm -f /run/xcloud/node.snapshot
    bind_policy <<<'cpus: {housekeeping: none}'
}

gpu_cluster_down() { [ -z "${DIR:-}" ] || cluster_down; }

report() { # SECTION LINE: into the report of ./run, and for whoever looks at the tests alone
    echo "# $2" >&3
    [ -z "${XCLOUD_GPU_REPORT:-}" ] || echo "$2" >>"$XCLOUD_GPU_REPORT/$1"
}

has_torch() { python3 -c 'import torch' 2>/dev/null || skip "no PyTorch here"; }

# The libnccl that PyTorch loads, or the system's.
nccl_library() {
    python3 -c 'import torch, re
torch.cuda.nccl.version()
print(re.search(r"\S*libnccl\S*", open("/proc/self/maps").read()).group())' 2>/dev/null ||
        ldconfig -p | sed -n 's/.*libnccl.so.2 .*=> //p' | head -n1
}
