#!/usr/bin/env bats
# A node with sockets, cgroup v2 and systemd: 16 CPUs (8 cores), 4 NUMA nodes, 8 stand-in GPUs, a NIC a node.

load common.bash

# All that a step could leave behind, a line each: cgroups, the plugin's own directories but for the
# records that it keeps, mounts, shared memory, temporary files, processes, slurmd's descriptors.
left_behind() {
    guest - <<'EOF'
find /sys/fs/cgroup/system.slice/lab_slurmstepd.scope -type d
find /run/xcloud /var/lib/xcloud -not -path '/run/xcloud/steps/*' 2>/dev/null
sort /proc/mounts
find /dev/shm /tmp /run/lock
ls /var/tmp
ls /var/spool/slurmd
cat /proc/sysvipc/shm /proc/sysvipc/sem
ps -eo user,comm | grep -E '^lab |slurm|xcloud' | sort
ls "/proc/$(systemctl show -P MainPID slurmd)/fd" | wc -l
EOF
}

# Steps with tasks that have ended, as the plugin has counted them.
steps_seen() {
    guest "od -An -v -tu8 -j8 /run/xcloud/steps.count | awk '{ for (i = 1; i <= NF; i++) n += \$i } END { print n }'"
}

setup_file() {
    lab_up
    policy <<<'cpus: {housekeeping: "0,8"}'
    as_user srun -Q --exclusive -n1 true 2>/dev/null # what the first step of a boot makes, stays
    guest 'until [ -z "$(squeue -h)" ]; do sleep 0.2; done; sleep 1'
    left_behind >"$BATS_FILE_TMPDIR/left"
    steps_seen >"$BATS_FILE_TMPDIR/steps"
}
teardown_file() { lab_down; }

@test "the reader agrees with hwloc on this machine" {
    contains "$(guest xcloud snapshot --compare-hwloc)" "hwloc agrees"
}

@test "8 tasks, 8 GPUs, 4 NUMA nodes: each task's CPUs, policy and pages are on its GPU's node, its NIC at PIX" {
    policy <<<'cpus: {housekeeping: none}'
    guest - <<'EOF'
cat >/home/lab/touch.py <<'PY'
import os, re
data = bytearray(64 << 20)
data[::4096] = b"x" * len(data[::4096])
line = max((l for l in open("/proc/self/numa_maps") if "anon=" in l),
           key=lambda l: int(l.split("anon=")[1].split()[0]))
pages = sorted((int(w[1:].split("=")[1]), w[1:].split("=")[0]) for w in line.split() if w[0] == "N" and "=" in w)
cpus = open("/proc/self/status").read().split("Cpus_allowed_list:")[1].split()[0]
policy = re.search(r"prefer(?: \(many\))?:(\S+)", line) # "prefer:0", or since 5.15 "prefer (many):0"
print("task", os.environ["SLURM_PROCID"], cpus, "prefers", policy and policy[1], "pages on", pages[-1][1])
PY
EOF
    out=$(as_user srun --exclusive -n8 --gres=gpu:8 --mem-per-cpu=0 --xcloud-bind=verbose python3 touch.py 2>&1)
    for rank in 0 1 2 3 4 5 6 7; do
        node=$((rank / 2)) cpus=$((rank * 2))-$((rank * 2 + 1))
        contains "$out" "task $rank $cpus prefers $node pages on $node"
        row=$(awk -v r=$rank '$1 == "lab" && $2 == r' <<<"$out")
        contains "$row" " $cpus "
        contains "$row" "mlx5_$node PIX"
        contains "$row" "preferred $node"
    done
}

# On v2 Slurm gives a task's directory to its user, and leaves with it what he has made there.
@test "housekeeping cores, siblings included, are in no task's effective cpuset; nothing leads back" {
    policy <<<'cpus: {housekeeping: "0,8"}'
    out=$(as_user "srun --exclusive -n1 -c16 bash -c '$allowed
        d=/sys/fs/cgroup\$(cut -d: -f3 /proc/self/cgroup)
        cat \$d/cpuset.cpus.effective
        taskset -c 0 true 2>/dev/null || echo refused
        for up in \$d \$d/.. \$d/../..; do
            (echo 0-15 >\$up/cpuset.cpus) 2>/dev/null && echo wrote \$up
            (echo \$\$ >\$up/../cgroup.procs) 2>/dev/null && echo moved \$up
            mkdir \$up/evil 2>/dev/null && (echo 0 >\$up/evil/cpuset.cpus; echo \$\$ >\$up/evil/cgroup.procs) 2>/dev/null && echo evil
        done
        taskset -c 1 true 2>/dev/null && echo escaped
        rmdir \$d/evil
        true'" 2>&1)
    expect output "$out" "2-7,10-15
2-7,10-15
refused"
}

@test "a step with =off, an --overlap step and the batch script have no way out either" {
    guest - <<'EOF'
cat >/home/lab/job.sh <<'S'
#!/bin/bash
taskset -c 0 true 2>/dev/null || echo batch refused
srun -n1 -c16 sleep 5 &
srun --overlap -n1 -c16 --xcloud-bind=off bash -c 'taskset -c 8 true 2>/dev/null || echo off refused'
srun --overlap -n1 -c16 bash -c 'taskset -c 9 true 2>/dev/null || echo overlap refused'
wait
S
EOF
    batch --exclusive -n1 -c16 -o job.out job.sh
    expect output "$(guest sort /home/lab/job.out)" "batch refused
off refused
overlap refused"
}

@test "the extern step is narrowed: what is adopted there stays off housekeeping" {
    guest - <<'EOF'
cd /home/lab
runuser -u lab -- srun --exclusive -n1 -c16 sleep 20 &
until job=$(squeue -h -t R -o %i) && [ -n "$job" ]; do sleep 0.2; done
until [ -e /sys/fs/cgroup/system.slice/lab_slurmstepd.scope/job_$job/step_0/user/task_0 ]; do sleep 0.2; done
d=/sys/fs/cgroup/system.slice/lab_slurmstepd.scope/job_$job/step_extern/user
cat $d/cpuset.cpus.effective >/home/lab/extern
# an adopted process, as pam_slurm_adopt would move it
sleep 100 & pid=$!
echo $pid >$(find $d -name 'task_*' -type d | head -n 1)/cgroup.procs
grep Cpus_allowed_list /proc/$pid/status | cut -f2 >>/home/lab/extern
kill $pid
scancel $job
wait
EOF
    expect extern "$(guest cat /home/lab/extern)" "2-7,10-15
2-7,10-15"
}

@test "a part of the node: two jobs side by side keep to their own" {
    policy <<<'cpus: {housekeeping: none}'
    out=$(guest - <<EOF
cd /home/lab
runuser -u lab -- srun -n1 -c4 --gres=gpu:2 bash -c '$allowed; sleep 5' >first &
sleep 2
runuser -u lab -- srun -n1 -c4 --gres=gpu:2 bash -c '$allowed' >second
wait
cat first second
EOF
)
    expect lines "$(wc -l <<<"$out")" 2
    disjoint "$(sed -n 1p <<<"$out")" "$(sed -n 2p <<<"$out")"
}

@test "smt=first takes the first thread of each core" {
    out=$(as_user "srun --exclusive -n8 --gres=gpu:8 --xcloud-bind=smt=first bash -c 'echo \$SLURM_PROCID \$($allowed)'" | sort)
    expect masks "$out" "$(for r in 0 1 2 3 4 5 6 7; do echo "$r $((r * 2))"; done)"
}

@test "the same plan outside: xcloud capture here, xcloud plan --machine there" {
    guest "xcloud capture -o /lab/node.tar.xz" >/dev/null
    inside=$(guest "xcloud plan --tasks 8 --node lab" | sed '/^info/d;/^mode observe/d;/^$/,$d')
    outside=$("$XC_STAGE/bin/xcloud" plan --machine "${XC_LAB:-/var/tmp/xcloud-lab}/share/node.tar.xz" --node lab --tasks 8 |
        sed '/^info/d;/^mode observe/d;/^$/,$d')
    expect plan "$outside" "$inside"
}

@test "a job that asked for no GPU on a part of the node is not told about GPUs" {
    out=$(as_user srun -n2 -c2 true 2>&1)
    lacks "$out" GPU
}

@test "a hundred steps leave nothing: no cgroup, mount, file or process, and an idle node" {
    # those of the tests above are among them; four are killed with their job
    policy <<<'cpus: {housekeeping: "0,8"}'
    steps=$((96 + $(cat "$BATS_FILE_TMPDIR/steps") - $(steps_seen)))
    guest - <<EOF
cat >/home/lab/job.sh <<'S'
#!/bin/bash
seq $steps | xargs -P 4 -I_ srun -Q --mpi=none --overlap -n1 -c2 true || echo failed
for i in 1 2 3 4; do srun -Q --mpi=none --overlap -n1 -c2 sh -c 'echo begun; exec sleep 100' & done
until [ "\$(grep -c begun job.out)" = 4 ]; do sleep 0.2; done
S
EOF
    batch --exclusive -n1 -c16 -o job.out job.sh
    lacks "$(guest cat /home/lab/job.out)" failed
    for _ in $(seq 20); do # the job's last step goes a moment later
        left=$(left_behind)
        [ "$left" != "$(cat "$BATS_FILE_TMPDIR/left")" ] || break
        sleep 1
    done
    expect left "$left" "$(cat "$BATS_FILE_TMPDIR/left")"
    [ "$(steps_seen)" -ge $(($(cat "$BATS_FILE_TMPDIR/steps") + 100)) ]
    [ "$(guest 'ls /run/xcloud/steps | wc -l')" -le 80 ]
    contains "$(guest sinfo -h -o %t)" idle
}
