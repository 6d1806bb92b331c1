#!/usr/bin/env bats
# Linux 6.12: since 6.2 a task keeps the mask that its user asked for, also beyond a narrower cpuset, and
# gets it back. What was shown on 6.1 holds there too.

load common.bash

setup_file() {
    export LAB_KERNEL=6.12
    "$HERE/lab" has 6.12 || skip "this host's archives have no Linux 6.12"
    lab_up
}
teardown_file() { lab_down; }

@test "it is that kernel, and the reader agrees with hwloc on it" {
    contains "$(guest uname -r)" 6.12.
    contains "$(guest xcloud snapshot --compare-hwloc)" "hwloc agrees"
}

@test "8 tasks, 8 GPUs: each on its GPU's node; memory prefers it" {
    policy <<<'cpus: {housekeeping: none}'
    out=$(as_user "srun --exclusive -n8 --gres=gpu:8 bash -c 'echo \$SLURM_PROCID \$($allowed) \$(head -n 1 /proc/self/numa_maps | cut -d\" \" -f2-3)'" 2>/dev/null | sort)
    expect tasks "$out" "$(for r in 0 1 2 3 4 5 6 7; do echo "$r $((r * 2))-$((r * 2 + 1)) prefer (many):$((r / 2))"; done)"
}

@test "housekeeping is refused, in pieces too, and a mask of the user's own does not lead back" {
    policy <<<'cpus: {housekeeping: "0,8"}'
    out=$(as_user "srun --exclusive -n1 -c16 bash -c '$allowed
        taskset -c 0 true 2>/dev/null || echo refused
        taskset -c 0,3 bash -c \"$allowed\"'" 2>/dev/null)
    expect output "$out" "2-7,10-15
refused
3"
}

@test "the batch script, an --overlap step and one with =off have no way out" {
    guest - <<'EOF'
cat >/home/lab/job.sh <<'S'
#!/bin/bash
taskset -c 0 true 2>/dev/null || echo batch refused
srun --overlap -n1 -c16 --xcloud-bind=off bash -c 'taskset -c 8 true 2>/dev/null || echo off refused'
srun --overlap -n1 -c16 bash -c 'taskset -c 9 true 2>/dev/null || echo overlap refused'
S
EOF
    batch --exclusive -n1 -c16 -o job.out job.sh
    expect output "$(guest sort /home/lab/job.out)" "batch refused
off refused
overlap refused"
}

@test "host apply and undo: services there and back, a daemon's own mask too; jobs keep their cores" {
    policy <<<'cpus: {housekeeping: "0,8", host: [services, irqs, workqueues]}'
    guest 'systemd-run -q --unit=bound taskset -c 5 sleep infinity; sleep 1; xcloud host apply >/dev/null'
    bound='grep Cpus_allowed_list /proc/$(systemctl show -P MainPID bound)/status | cut -f2'
    run -0 guest xcloud host verify
    expect bound "$(guest "$bound")" 0-1,8-9
    expect job "$(as_user "srun --exclusive -n1 -c16 bash -c '$allowed'" 2>/dev/null)" 2-7,10-15
    run -0 guest xcloud host undo
    expect bound "$(guest "$bound")" 5
    expect munge "$(guest cat /sys/fs/cgroup/system.slice/munge.service/cpuset.cpus.effective)" 0-15
}
