#!/usr/bin/env bats
# The host's own services, interrupts and unbound work on the housekeeping CPUs: set, kept, given back, and
# never a job's. Tests follow one another: before, apply, undo, reboot. Core i has CPUs 2i and 2i+1, so
# that housekeeping is 0,1 (node 0) and 8,9 (node 2).

load common.bash

setup_file() {
    lab_up
    policy <<<'cpus: {housekeeping: "0,8", host: [services, irqs, workqueues]}'
    guest - <<'EOF'
modprobe e1000e
for i in 0 1 2 3; do until ip link set eth$i up 2>/dev/null; do sleep 0.2; done; done
# a daemon that has bound itself
systemd-run -q --unit=bound taskset -c 5 sleep infinity
cat >/root/settings <<'S'
# all that apply may touch, but for the thread that asks
cd /sys/fs/cgroup
grep . init.scope/cpuset.cpus.effective system.slice/*.service/cpuset.cpus.effective
grep . /proc/irq/default_smp_affinity /proc/irq/*/smp_affinity_list /sys/devices/virtual/workqueue/cpumask
for unit in init.scope system.slice/{munge,slurmctld,slurmd,dbus,bound}.service; do
    for tid in $(<$unit/cgroup.threads); do echo /proc/$tid/status; done | xargs grep -H Cpus_allowed_list | sed "s|^|${unit##*/} |"
done
ls -R /run/systemd/system
S
EOF
}
teardown_file() { lab_down; }

training=2-7,10-15
cpus_of() { guest "cat /sys/fs/cgroup/$1/cpuset.cpus.effective"; }
all_of_a_job() { # CPUS: all that Slurm gives of a node
    expect srun "$(as_user "srun --exclusive -n1 -c$1 bash -c '$allowed'" 2>/dev/null)" $training
}
all_of_a_batch_job() { # CPUS
    guest - <<EOF
cd /home/lab
printf '#!/bin/bash\n$allowed\nsrun -n1 -c$1 bash -c "$allowed"\n' >job.sh
runuser -u lab -- sbatch -Q --wait --exclusive -n1 -c$1 -o job.out job.sh
EOF
    expect sbatch "$(guest grep -v : /home/lab/job.out)" "$training
$training"
}

@test "before: the host's own runs on training cores, and the checks say so" {
    run -1 guest xcloud host verify
    for what in "host.slices munge.service" "host.slices init.scope" "host.slices PID 1" "host.irqs default" \
        "host.workqueues: the kernel's unbound work may run on CPUs 0-15" "host processes may run on training CPUs"; do
        contains "$output" "$what"
    done
}

@test "observe, --dry-run and a wrong policy set nothing" {
    before=$(guest bash /root/settings)
    run -0 guest xcloud host apply --dry-run
    contains "$output" "would set"
    run -0 guest "sed 's/mode: bind/mode: observe/' /etc/xcloud/policy.yaml >/root/observe.yaml; xcloud host apply --policy /root/observe.yaml"
    contains "$output" "mode observe: nothing is set"
    run -2 guest "sed 's/0,8/0,99/' /etc/xcloud/policy.yaml >/root/wrong.yaml; xcloud host apply --policy /root/wrong.yaml"
    contains "$output" "99"
    run -2 guest "cp /etc/xcloud/policy.yaml /root/good.yaml; echo 'mood: x' >>/etc/xcloud/policy.yaml; xcloud host apply; rc=\$?; cp /root/good.yaml /etc/xcloud/policy.yaml; exit \$rc"
    contains "$output" "policy.yaml:5:1"
    expect settings "$(guest bash /root/settings)" "$before"
    run ! guest ls /run/xcloud/host.state
}

@test "apply while a job runs: the host goes to its CPUs, and nothing of the job moves" {
    guest - >"$BATS_FILE_TMPDIR/log" 2>&1 <<'EOF'
bash /root/settings >/root/before
systemctl start irqbalance
cd /home/lab
runuser -u lab -- srun --exclusive -n4 -c3 bash -c 'taskset -c $(taskset -pc $$ | sed "s/.*: //; s/[-,].*//") sleep 600' >/dev/null 2>&1 &
until [ "$(pgrep -u lab -x sleep | wc -l)" = 4 ]; do sleep 0.5; done
job() {
    for pid in $(pgrep -u lab -x sleep) $(pgrep slurmstepd); do echo "$pid $(grep Cpus_allowed_list /proc/$pid/status)"; done | sort
    find /sys/fs/cgroup/system.slice/lab_slurmstepd.scope -name 'cpuset.cpus*' -exec grep -H . {} + | sort
}
job >/root/job.before
xcloud host apply; echo "apply $?"
job >/root/job.after
diff /root/job.before /root/job.after; echo "job $?"
systemctl daemon-reload
job | diff /root/job.before -; echo "reload $?"
scancel -u lab
wait
wc -l </root/job.before
EOF
    out=$(cat "$BATS_FILE_TMPDIR/log")
    for what in "apply 0" "job 0" "reload 0" "slurmd.service: it starts jobs" "restarted with the training CPUs banned" \
        "CpuSpecList=0-1,8-9 in slurm.conf mends it"; do
        contains "$out" "$what"
    done
    [ "$(tail -n 1 "$BATS_FILE_TMPDIR/log")" -gt 8 ]
}

@test "after: no strays; jobs have all their cores" {
    run -0 guest xcloud host verify
    for what in "PASS    host.slices" "PASS    host.irqs" "PASS    host.workqueues" "PASS    host.strays"; do
        contains "$output" "$what"
    done
    expect scope "$(cpus_of system.slice/lab_slurmstepd.scope)" 0-15
    all_of_a_job 16
    all_of_a_batch_job 16
}

@test "irqbalance stays off the training CPUs" {
    guest 'tr "\0" "\n" </proc/$(pidof irqbalance)/environ | grep -x IRQBALANCE_BANNED_CPULIST=2-7,10-15'
    guest 'systemctl stop irqbalance' # its next move is not undo's
}

@test "a second apply changes nothing" {
    before=$(guest "bash /root/settings; cat /run/xcloud/host.state")
    run -0 guest xcloud host apply
    lacks "$output" " set "
    lacks "$output" refused
    expect all "$(guest "bash /root/settings; cat /run/xcloud/host.state")" "$before"
}

@test "what starts later comes out right: services, sessions, machines; slurmd and its scope stay open" {
    guest - <<'EOF'
systemd-run -q --unit=late sleep infinity
systemd-run -q --unit=session --slice=user.slice --scope sleep infinity &
systemd-run -q --unit=machine --slice=machine.slice --scope sleep infinity &
systemctl restart munge slurmd
sleep 1
EOF
    expect late "$(cpus_of system.slice/late.service)" 0-1,8-9
    expect munge "$(cpus_of system.slice/munge.service)" 0-1,8-9
    expect user "$(cpus_of user.slice)" 0-1,8-9
    expect machine "$(cpus_of machine.slice)" 0-1,8-9
    expect slurmd "$(cpus_of system.slice/slurmd.service)" 0-15
    expect scope "$(cpus_of system.slice/lab_slurmstepd.scope)" 0-15
    guest 'until [ "$(sinfo -h -o %t)" = idle ]; do sleep 0.5; done; systemctl stop session.scope machine.scope'
    all_of_a_job 16
}

@test "an ssh session that pam_slurm_adopt moves out of its service gets all of the job's cores" {
    out=$(guest - <<'EOF'
cd /home/lab
systemd-run -q --unit=login sleep infinity # sshd's child for this session
runuser -u lab -- srun --exclusive -n1 -c16 sleep 600 >/dev/null 2>&1 &
until job=$(squeue -h -t R -o %i) && [ -n "$job" ]; do sleep 0.2; done
d=/sys/fs/cgroup/system.slice/lab_slurmstepd.scope/job_$job
until [ -e $d/step_0/user/task_0 ]; do sleep 0.2; done
pid=$(systemctl show -P MainPID login)
grep Cpus_allowed_list /proc/$pid/status | cut -f2
echo $pid >$(find $d/step_extern/user -name 'task_*' -type d | head -n 1)/cgroup.procs
grep Cpus_allowed_list /proc/$pid/status | cut -f2
kill $pid
scancel $job
wait
EOF
)
    expect adopted "$out" "0-1,8-9
$training"
}

@test "a service that the site has pinned keeps its CPUs, and verify names it" {
    guest - <<'EOF'
mkdir -p /etc/systemd/system/pinned.service.d
printf '[Service]\nExecStart=sleep infinity\n' >/etc/systemd/system/pinned.service
printf '[Service]\nAllowedCPUs=\nAllowedCPUs=4-5\n' >/etc/systemd/system/pinned.service.d/cpus.conf
systemctl daemon-reload
systemctl start pinned
EOF
    run -0 guest xcloud host apply
    contains "$output" "pinned.service: its unit says AllowedCPUs= or CPUAffinity="
    expect pinned "$(cpus_of system.slice/pinned.service)" 4-5
    run -1 guest xcloud host verify
    contains "$output" "host.slices pinned.service: it may use CPUs 4-5"
    guest 'systemctl stop pinned; rm -r /etc/systemd/system/pinned.service*; systemctl daemon-reload'
    run -0 guest xcloud host apply
    run ! guest ls /run/systemd/system/pinned.service.d
}

@test "undo gives everything back, also to a daemon that had bound itself" {
    guest 'systemctl stop late'
    run -0 guest xcloud host undo
    contains "$output" "restored"
    guest 'bash /root/settings >/root/after'
    # irqbalance and the services that were restarted have other threads, and other interrupts
    out=$(guest 'norm() { grep -v -e irqbalance -e "^munge.service" -e "^slurmd.service" -e "^/proc/irq/[0-9]" $1; }
        diff <(norm /root/before) <(norm /root/after) && echo same; grep ^bound.service /root/after')
    contains "$out" same
    contains "$out" "Cpus_allowed_list:	5"
    run -0 guest xcloud host undo
    contains "$output" "nothing has been set since the boot"
}

@test "interrupts go near their device, and are given back" {
    guest 'bash /root/settings | grep ^/proc/irq >/root/before; xcloud host apply >/dev/null'
    # memory node 2 has 8 and 9, node 1 has none of the housekeeping CPUs
    near='for i in 0 1 2 3; do d=/sys/class/net/eth$i/device; [ $(cat $d/numa_node) = NODE ] && cat /proc/irq/$(ls $d/msi_irqs | head -n 1)/smp_affinity_list; done; true'
    expect "node 2" "$(guest "${near/NODE/2}")" 8-9
    expect "node 1" "$(guest "${near/NODE/1}")" 0-1,8-9
    [ "$(guest 'bash /root/settings | grep ^/proc/irq | diff /root/before - | grep -c "^>"')" -gt 5 ]
    guest 'xcloud host undo >/dev/null; bash /root/settings | grep ^/proc/irq | diff /root/before -'
}

@test "with CpuSpecList, from the words that apply prints, jobs have the same cores" {
    guest - <<'EOF'
words=$(xcloud host apply | grep -o 'CpuSpecList=[0-9,-]*')
sed -i "s/ State=/ $words State=/" /run/lab/node.conf
systemctl restart slurmctld slurmd
until [ "$(sinfo -h -o %t)" = idle ]; do sleep 0.5; done
EOF
    out=$(guest xcloud host apply)
    lacks "$out" CpuSpecList
    run -0 guest xcloud host verify
    contains "$output" "PASS    slurm.cpuspec"
    all_of_a_job 12
    all_of_a_batch_job 12
}

@test "a reboot forgets, and xcloud-host.service applies again before slurmd starts" {
    guest "systemctl enable -q $XC_STAGE/lib/systemd/system/xcloud-host.service"
    "$HERE/lab" reboot 3>&-
    expect result "$(guest systemctl show -P Result xcloud-host)" success
    guest '[ $(systemctl show -P ExecMainExitTimestampMonotonic xcloud-host) -lt $(systemctl show -P ExecMainStartTimestampMonotonic slurmd) ]'
    guest 'grep -q "^cpus	0-1,8-9" /run/xcloud/host.state'
    run -0 guest xcloud host verify
    all_of_a_job 16
    run -0 guest xcloud host undo
    expect munge "$(cpus_of system.slice/munge.service)" 0-15
}
