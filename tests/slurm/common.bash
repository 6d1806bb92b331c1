# What the tests of tests/slurm share. XC_STAGE is where `make install` has put the build.
#
# A test file calls `cluster_up` in setup_file with the variables of ./cluster, `cluster_down` in
# teardown_file. The machine of every node is made for the host that the tests run on: as many CPUs,
# the first half on NUMA node 0, the second on node 1, and two GPUs that sit crosswise: GPU 0 on node 1,
# GPU 1 on node 0. So a task that follows its GPU is told from one that follows its number.

bats_require_minimum_version 1.5.0
HERE=$(dirname "${BASH_SOURCE[0]}")
. "$HERE/../expect.bash"
STAGE=${XC_STAGE:?"XC_STAGE: where is the build installed?"}
PLUGIN=$STAGE/lib/slurm/xcloud_bind.so
export PATH=$STAGE/bin:$PATH

CPUS=$(nproc)
HALF=$((CPUS / 2))
list() { [ "$1" = "$2" ] && echo "$1" || echo "$1-$2"; }
LOWER=$(list 0 $((HALF - 1)))          # CPUs of NUMA node 0
UPPER=$(list $HALF $((CPUS - 1)))      # CPUs of NUMA node 1
LAST=$((CPUS - 1))

make_host_machine() { # OUTDIR
    local description=$BATS_FILE_TMPDIR/host.machine
    sed -e "s/^cores 1/cores $HALF/" -e "s/cores=0 /cores=0-$((HALF - 1)) /" \
        -e "s/cores=1 /cores=$HALF-$LAST /" "$HERE/../machines/two-node-2cpu.machine" >"$description"
    "$HERE/../machines/make-machine" "$description" "$1"
}

policy() { # the site's policy, from standard input, on every node
    cat >"$DIR/etc/policy.yaml.new"
    mv "$DIR/etc/policy.yaml.new" "$DIR/etc/policy.yaml"
}

bind_policy() { # a policy that binds; more lines of its defaults from standard input
    { printf 'version: 1\nmode: bind\ndefaults:\n'; sed 's/^/  /'; } | policy
}

cluster_up() {
    export DIR=/tmp/xcloud-slurm.$BATS_ROOT_PID.$(basename "$BATS_TEST_FILENAME" .bats)
    [ -n "${MACHINE:-}" ] || { make_host_machine "$BATS_FILE_TMPDIR/machine"; MACHINE=$BATS_FILE_TMPDIR/machine; }
    PLUGSTACK=${PLUGSTACK-"optional $PLUGIN policy=%D/etc/policy.yaml machine=%D/nodes/%n ${PLUGIN_ARGS:-}"}
    export MACHINE PLUGSTACK
    export SLURM_CONF=$DIR/etc/slurm.conf
    "$HERE/cluster" start "$DIR"
    mkdir -m 1777 "$DIR/home" # where the user may write
}

cluster_down() { "$HERE/cluster" stop "$DIR"; }

# Runs as a normal user, from a directory of his, with the job's output in $output.
as_user() { # closes bats' own descriptor: a step left behind must not hold the run
    (cd "$DIR/home" && exec 3>&- && exec timeout 120 setpriv --reuid nobody --regid nogroup \
        --clear-groups env -u XCLOUD_POLICY_HASH "$@")
}

# A batch job, until it has ended: sbatch --wait looks after 2, 10 and 42 s.
batch() { # SBATCH-ARGUMENTS…
    local job
    job=$(as_user sbatch --parsable "$@")
    while [ -n "$(squeue -h -j "$job" 2>/dev/null)" ]; do sleep 0.1; done
}

allowed='grep Cpus_allowed_list /proc/self/status | cut -f2'

# In a task: the directory of its cpuset, and the file that says which CPUs it has.
own_cgroup='p=$(grep :cpuset: /proc/self/cgroup | cut -d: -f3); d=/sys/fs/cgroup/cpuset$p; f=$d/cpuset.cpus
    [ -n "$p" ] || { d=/sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3); f=$d/cpuset.cpus.effective; }'

# The masks of all tasks, "RANK LIST" a line, in rank order.
masks() { # SRUN-ARGUMENTS…
    as_user srun -Q "$@" bash -c "echo \$SLURM_PROCID \$($allowed)" | sort -n
}

nodes_idle() { # all nodes come back idle (or planned: the scheduler's thought), none drained
    local _
    for _ in $(seq 50); do
        [ -z "$(sinfo -h -N -o '%T' | grep -vE '^(idle|planned)$')" ] && return
        sleep 0.1
    done
    sinfo -h -N -o '%N %T %E' >&2
    return 1
}
