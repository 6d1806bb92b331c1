#!/usr/bin/env bats
# Slurm set up in other ways, on cgroup v2: each does what xcloud-bind(1) says.

load common.bash

setup_file() { lab_up; }
teardown_file() { lab_down; }

# Slurm as the image has it, but for lines of slurm.conf (from standard input) and of cgroup.conf.
slurm_with() { # [CGROUP_LINE]
    { printf 'cat >/root/more.conf <<"C"\n'; cat; printf 'C\ncgroup=%q\n' "${1:-}"; cat <<'EOF'; } | guest -
cd /etc/slurm
for conf in slurm.conf cgroup.conf; do [ -e $conf.image ] || cp $conf $conf.image; cp $conf.image $conf; done
while IFS='=' read -r key value; do
    sed -i "/^$key=/d" slurm.conf
    echo "$key=$value" >>slurm.conf
done </root/more.conf
[ -z "$cgroup" ] || { sed -i "/^${cgroup%%=*}=/d" cgroup.conf; echo "$cgroup" >>cgroup.conf; }
systemctl restart slurmctld slurmd
until [ "$(sinfo -h -o %t)" = idle ]; do sleep 0.2; done
EOF
}

pairs=$(for r in 0 1 2 3 4 5 6 7; do echo "$r $((r * 2))-$((r * 2 + 1))"; done)
near_their_gpus() {
    policy <<<'cpus: {housekeeping: none}'
    expect masks "$(as_user "srun --exclusive -n8 --gres=gpu:8 bash -c 'echo \$SLURM_PROCID \$($allowed)'" 2>/dev/null | sort)" "$pairs"
}
off_housekeeping() { # what a task of a whole node may use, and whether it gets onto CPU 0
    policy <<<'cpus: {housekeeping: "0,8"}'
    as_user "srun --exclusive -n1 -c16 --xcloud-bind=verbose bash -c '$allowed; taskset -c 0 true 2>/dev/null && echo free || echo refused'" 2>&1
}

# Beside their GPUs, and off the housekeeping cores whatever the user does; what the step said is in $out.
bound_and_refused() {
    near_their_gpus
    out=$(off_housekeeping)
    contains "$out" "2-7,10-15"
    contains "$out" refused
}

@test "ConstrainCores=no: bound all the same, and housekeeping is refused: on v2 a step can have a cpuset" {
    slurm_with ConstrainCores=no </dev/null
    bound_and_refused
    # and a part of the node keeps to the CPUs that Slurm gave it, whatever the cpuset says
    policy <<<'cpus: {housekeeping: none}'
    guest - <<EOF
cd /home/lab
runuser -u lab -- srun -Q -n2 -c2 --gres=gpu:2 bash -c '$allowed; sleep 8' >first 2>/dev/null &
until [ "\$(wc -l <first)" = 2 ]; do sleep 0.2; done
runuser -u lab -- srun -Q -n2 -c2 --gres=gpu:2 bash -c '$allowed' >second 2>/dev/null
wait
EOF
    expect first "$(guest 'sort /home/lab/first')" "0-1
2-3"
    expect second "$(guest 'sort /home/lab/second')" "4-5
6-7"
}

@test "task/affinity alone: the same" {
    slurm_with <<<TaskPlugin=task/affinity
    bound_and_refused
}

@test "jobacct_gather/cgroup puts each task into a group of its own: bound, and refused" {
    slurm_with <<<JobAcctGatherType=jobacct_gather/cgroup
    bound_and_refused
    lacks "$out" "affinity alone"
}

@test "job_container/tmpfs gives a job its own /tmp: bound, refused, and recorded" {
    guest 'printf "AutoBasePath=true\nBasePath=/var/tmp/jobs\n" >/etc/slurm/job_container.conf'
    slurm_with <<<JobContainerType=job_container/tmpfs
    bound_and_refused
    out=$(as_user "srun --exclusive -n1 -c16 bash -c 'touch /tmp/mine; grep -c /var/tmp/jobs /proc/self/mountinfo'" 2>/dev/null)
    [ "$out" -ge 1 ] # it really had one
    job=$(guest "ls /run/xcloud/steps | grep '[.]0$' | sort -n | tail -n 1")
    contains "$(guest xcloud job "$job")" "2-7,10-15"
}
