#!/usr/bin/env bats
# The node's own files, changed by hand as people and tools do: each fault drains the node with its own
# reason before a task runs, and health brings it back once it is mended.

load common.bash

setup_file() {
    lab_up
    guest - <<EOF
cat >/etc/xcloud/policy.yaml <<'Y'
version: 1
mode: enforce
defaults:
  cpus: {housekeeping: "0,8", host: [services]}
  programs: {jitter: 1s}
  resume: {checks: [cpu.cstate, cpu.turbo, topo.file], after: 1 clean runs, quiet: 1s, lemon: 9 drains in 7d}
  topo: {file: /etc/nccl/topo.xml}
  checks: {cpu.cstate: drain, cpu.turbo: drain, topo.file: drain, host.slices: drain}
Y
xcloud policy arm
mkdir -p /etc/nccl
xcloud topo generate -o /etc/nccl/topo.xml
for governor in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance >\$governor; done
xcloud host apply >/dev/null
echo Prolog=$XC_STAGE/sbin/xcloud-prolog >>/etc/slurm/slurm.conf
systemctl restart slurmctld slurmd
until [ "\$(sinfo -h -o %t)" = idle ]; do sleep 0.2; done
EOF
}
teardown_file() { lab_down; }

state() { guest "sinfo -h -N -o '%T %E'"; }
faulty() { # HOW-TO-BREAK REASON: a job comes, and the node goes
    guest "$1"
    as_user sbatch -Q -o /dev/null --wrap "'touch /home/lab/ran'" >/dev/null
    guest 'for i in $(seq 100); do case $(sinfo -h -o %T) in drained) exit 0 ;; esac; sleep 0.3; done; exit 1' || { state >&2; return 1; }
    contains "$(state)" "drained xcloud: $2"
    guest 'scancel -u lab; test ! -e /home/lab/ran'
}
health() { guest "env -i SLURMD_NODENAME=lab $XC_STAGE/sbin/xcloud-health 2>&1"; }
mended() { # HOW-TO-MEND: the next runs of health bring it back
    guest "$1; sleep 1.2"
    for _ in 1 2 3; do
        health
        [ "$(state)" != "idle none" ] || return 0
    done
    state >&2
    return 1
}

cpu5=/sys/devices/system/cpu/cpu5

@test "a fit node: the job runs" {
    contains "$(as_user srun echo ran 2>&1)" ran
    run -0 health
    contains "$(state)" idle
}

@test "a C-state disabled by hand on one CPU" {
    faulty "for s in 1 2 3; do echo 1 >$cpu5/cpuidle/state\$s/disable; done" "cpu.cstate cpu5: "
    mended "for s in 1 2 3; do echo 0 >$cpu5/cpuidle/state\$s/disable; done"
}

@test "a governor, and a highest frequency" {
    faulty "echo schedutil >$cpu5/cpufreq/scaling_governor" "cpu.turbo cpu5: the governor is schedutil"
    mended "echo performance >$cpu5/cpufreq/scaling_governor"
    faulty "echo 2000000 >$cpu5/cpufreq/scaling_max_freq" "cpu.turbo cpu5: "
    mended "cat $cpu5/cpufreq/cpuinfo_max_freq >$cpu5/cpufreq/scaling_max_freq"
}

@test "a process that holds /dev/cpu_dma_latency" {
    faulty "systemd-run -q --unit=holder bash -c 'exec 3>/dev/cpu_dma_latency; printf \"\\0\\0\\0\\0\" >&3; sleep infinity'; sleep 1" \
        "cpu.cstate cpu0-15: C1 is held off: /dev/cpu_dma_latency allows 0 us"
    mended "systemctl stop holder"
}

@test "the topology file is gone" {
    faulty "mv /etc/nccl/topo.xml /etc/nccl/away" "topo.file /etc/nccl/topo.xml: "
    mended "mv /etc/nccl/away /etc/nccl/topo.xml"
}

@test "a service on training cores: not among the checks that resume, so a person brings the node back" {
    faulty "systemd-run -q --unit=pinned -p AllowedCPUs=4-5 sleep infinity" "host.slices "
    contains "$(state)" "4-5"
    guest 'systemctl stop pinned; sleep 1.2'
    health
    health
    contains "$(state)" drained
    guest 'scontrol update nodename=lab state=resume'
    contains "$(as_user srun echo ran 2>&1)" ran
}
