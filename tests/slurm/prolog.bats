#!/usr/bin/env bats
# The node is fit, or it is drained with a reason: xcloud-prolog, xcloud-epilog and xcloud-health as the
# programs of a real Slurm of eight nodes. Each node's checks look at a machine of its own (checks_root:),
# a described HGX H100 that is healthy or has one fault.

load common.bash

NODE_LIST="p1 p2 p3 p4 p5 p6 p7 p8"

wrapper() { # PROGRAM OPTIONS…: as slurm.conf names it
    local program=$1
    shift
    cat >"$DIR/etc/$program" <<SH
#!/bin/sh
env >>"$DIR/log/env.$program.\$SLURMD_NODENAME"
touch "$DIR/running/\$\$"
"$STAGE/sbin/xcloud-$program" --prefix "$DIR/nodes/\$SLURMD_NODENAME" $* 2>>"$DIR/log/$program.\$SLURMD_NODENAME"
status=\$?
rm -f "$DIR/running/\$\$"
exit \$status
SH
    chmod 755 "$DIR/etc/$program"
}

setup_file() {
    export DIR=/tmp/xcloud-slurm.$BATS_ROOT_PID.prolog
    export ROOTS=$DIR/roots
    [ ! -w /dev/shm ] || ROOTS=/dev/shm/xcloud-roots.$BATS_ROOT_PID # they are many small files
    mkdir -p "$DIR"/{etc,log,bin,dirty,running} "$ROOTS"
    gcc -o "$DIR/bin/lay-host" "$HERE/../checks/lay-host.c"
    "$HERE/../machines/make-machine" hgx-h100 "$ROOTS/good"
    "$DIR/bin/lay-host" "$ROOTS/good"
    # what Slurm's commands are asked is written down
    for command in scontrol sinfo; do
        printf '#!/bin/sh\necho "%s $*" >>%s/log/calls\nexec /usr/bin/%s "$@"\n' $command "$DIR" $command >"$DIR/bin/$command"
        chmod 755 "$DIR/bin/$command"
    done
    for program in prolog epilog health; do wrapper $program; done
    export NODES=8 NODE=p OVERSUBSCRIBE=FORCE:4
    export CONF="Prolog=$DIR/etc/prolog
Epilog=$DIR/etc/epilog
PrologFlags=Alloc
HealthCheckProgram=$DIR/etc/health
HealthCheckInterval=3600"
    for node in $NODE_LIST; do mend $node; done
    cluster_up
}
teardown_file() {
    cluster_down
    rm -rf "$ROOTS"
}

setup() {
    back
    for node in $(ls "$DIR/dirty"); do mend "$node"; done
    rm -rf "$DIR"/nodes/*/run/xcloud/{drained,refuse,refused,tally,stuck,counters*} "$DIR"/nodes/*/var/lib/xcloud
    rm -f "$DIR"/log/{calls,prolog.*,epilog.*,health.*} "$DIR"/home/*
    wrapper prolog
}

back() { # no job is left, and all nodes are in use again: for a while, since a failed prolog is told late
    local quiet=0
    scancel -u nobody
    for _ in $(seq 150); do
        if [ -z "$(squeue -h)$(ls "$DIR/running")" ] && [ "$(sinfo -h -N -o %T | grep -cx idle)" = 8 ]; then
            quiet=$((quiet + 1))
            [ $quiet -lt 4 ] || return 0
        else
            quiet=0
            scontrol update nodename="p[1-8]" state=resume 2>/dev/null || true
        fi
        sleep 0.1
    done
    squeue >&2
    sinfo -N -o "%N %T %E" >&2
    return 1
}

# When several nodes of a job fail, slurmd tells the controller every 15 s again (22.05): a node that is
# resumed in between is drained anew, with Slurm's own words. The daemons forget it when they end.
forget() { "$HERE/cluster" restart "$DIR"; }

# The nodes' machines are links to the files of the good one: a file is taken away, or made anew.
mend() { rm -rf "$ROOTS/$1" "$DIR/dirty/$1" && cp -al "$ROOTS/good" "$ROOTS/$1"; }
lose() { # NODE PATH
    touch "$DIR/dirty/$1"
    rm -rf "$ROOTS/$1$2"
}
put() { # NODE PATH CONTENT
    lose "$1" "$2"
    echo "$3" >"$ROOTS/$1$2"
}

# The site's policy on all nodes, armed: MODE, then lines of its class (two blanks in front of each), then
# whole lines of its top from standard input.
checks='    checks:
      cpu.cstate: { deepest: C6, on_fail: drain }
      cpu.turbo: drain
      gpu.count: drain
      gpu.pcie: drain
      nic.port: drain
      mem.total: { total: 2048, node: 1024, on_fail: drain }
      topo.file: drain'
site() { # MODE [CHECKS]
    cat >"$DIR/etc/site.yaml" <<YAML
version: 1
mode: $1
defaults:
  bind: { default: ask }
  programs: { jitter: 1s }
classes:
  - name: hgx
    match: { nodes: "p[1-8]" }
    checks_root: $ROOTS/%n
    expect: { gpus: { count: 8 }, nics: { count: 8, rate: 400Gb/s, link: infiniband } }
    nics: { compute: { pci: "15b3:1021", not: [mlx5_4, mlx5_9] } }
    topo: { file: /etc/nccl/topo.xml }
${2-$checks}
      self.scontrol: { path: ${SCONTROL:-$DIR/bin/scontrol} }
$(cat)
YAML
    policy <"$DIR/etc/site.yaml"
    for node in $NODE_LIST; do
        mkdir -p "$DIR/nodes/$node/etc/xcloud" "$DIR/nodes/$node/var/lib/xcloud"
        cp "$DIR/etc/site.yaml" "$DIR/nodes/$node/etc/xcloud/policy.yaml"
    done
    xcloud policy check "$DIR/etc/site.yaml"
    for node in $NODE_LIST; do xcloud policy arm --prefix "$DIR/nodes/$node" >/dev/null; done
}
wide='breaker: { cluster: 8, class: 8, job: 8 }'

reason() { sinfo -h -N -n "$1" -o '%T %E'; }
drained() { sinfo -h -N -o "%N %T %E" >&2; sinfo -h -N -o "%N %T" | sed -n "s, drain.*,,p"; }
by_us() { # how many nodes are drained with a reason of ours; all reasons are shown when the test fails
    sinfo -h -N -o '%N %T %E' >&2
    sinfo -h -N -t drain -o %E | grep -c '^xcloud: '
}
wait_drained() { # COUNT
    for _ in $(seq 100); do
        [ "$(sinfo -h -N -o %T | grep -cx drained)" -ge "$1" ] && return
        sleep 0.1
    done
    sinfo -N -o '%N %T %E' >&2
    tail -n 20 "$DIR"/log/prolog.* >&2
    return 1
}
said() { cat "$DIR"/log/prolog.*; }

# ROCm/spur#836: a wave of checks over all nodes asks nothing that all of them share
@test "a fit node: jobs run, and nobody asks Slurm anything" {
    site enforce <<<"$wide"
    run -0 as_user srun -N8 -n8 echo ran
    expect ran "$(grep -c ran <<<"$output")" 8
    [ ! -e "$DIR/log/calls" ]
    expect runs "$(grep -h prolog.runs "$DIR"/nodes/*/run/xcloud/tally | sort | uniq -c | xargs)" "8 prolog.runs 1"
    nodes_idle
}

# nebius/nebius-solutions-library#265, slurm-gcp#223: one scontrol, on failure alone, and a reason that says it
@test "each of seven faults drains its node with its own reason before a task runs, and the job is requeued" {
    site enforce <<<"$wide"
    C=/sys/devices/system/cpu
    for cpu in $(seq 0 223); do
        put p1 $C/cpu$cpu/cpuidle/state3/disable 1
        put p1 $C/cpu$cpu/cpuidle/state3/default_status disabled
        put p7 $C/cpu$cpu/cpufreq/energy_performance_preference power
        put p7 $C/cpu$cpu/cpufreq/scaling_governor powersave
    done
    lose p2 /etc/nccl/topo.xml
    gpu=$(readlink -f "$ROOTS/p3/sys/bus/pci/devices/0000:18:00.0")
    [ -d "$gpu" ]
    lose p3 "${gpu#$ROOTS/p3}"
    lose p3 /sys/bus/pci/devices/0000:18:00.0
    put p4 /sys/class/infiniband/mlx5_5/ports/1/rate '200 Gb/sec (2X NDR)'
    put p5 /sys/bus/pci/devices/0000:3a:00.0/current_link_width 8
    put p6 /sys/devices/system/node/node1/meminfo 'Node 1 MemTotal: 939524096 kB'
    lose p6 /run/xcloud/node.snapshot # a DIMM goes with a boot
    for i in 1 2 3 4 5 6 7; do
        as_user sbatch -w p$i -N1 --requeue -o /dev/null --wrap "touch $DIR/home/ran.p$i" >/dev/null
    done
    wait_drained 7
    contains "$(reason p1)" "drained xcloud: cpu.cstate cpu0-223: C6 "
    contains "$(reason p1)" "BIOS"
    contains "$(reason p2)" "drained xcloud: topo.file /etc/nccl/topo.xml: "
    contains "$(reason p3)" "drained xcloud: gpu.count"
    contains "$(reason p4)" "drained xcloud: nic.port mlx5_5"
    contains "$(reason p5)" "drained xcloud: gpu.pcie"
    contains "$(reason p6)" "drained xcloud: mem.total"
    contains "$(reason p7)" "drained xcloud: cpu.turbo"
    expect jobs "$(squeue -h -o '%T' | sort | uniq -c | xargs)" "7 PENDING"
    for job in $(squeue -h -o %i); do contains "$(scontrol show job $job)" "Restarts=1"; done
    expect 'tasks that ran' "$(find "$DIR/home" -name 'ran.*' | wc -l)" 0
    # the eighth is not touched
    run -0 as_user srun -w p8 -N1 echo ran
    # each drain asked no more than it must
    expect drains "$(grep -c 'state=drain' "$DIR/log/calls")" 7
}

fail_all() { # a policy that is wrong for every node
    site enforce "    checks:
      mem.total: { total: 4096, on_fail: drain }" <<<"$1"
}
many_jobs() { # the same job again and again, on all nodes: what users do
    for _ in 1 2 3; do
        as_user srun -N8 -n8 --immediate=5 true >/dev/null 2>&1 || true
        as_user sbatch -N8 -o /dev/null --wrap true >/dev/null 2>&1 || true
    done
}

# ROCm/spur#836: no wave of drains
@test "a wrong policy on all nodes at once, nodes counted: no more are drained than the breaker's limit" {
    fail_all 'breaker: { cluster: 3, job: 8 }'
    many_jobs
    sleep 3
    expect drained "$(by_us)" 3
    contains "$(said)" "is not drained, the breaker is open: 3 nodes of the cluster were drained within "
    # the five that were refused do not ask again with the next job, for half a minute or so: more, here
    expect 'nodes that wait' "$(ls "$DIR"/nodes/*/run/xcloud/refused | wc -l)" 5
    sed -i "s/^until .*/until $(awk '{ print int($1) + 1000 }' /proc/uptime)/" "$DIR"/nodes/*/run/xcloud/refused
    local asked
    asked=$(grep -c '^sinfo' "$DIR/log/calls")
    run -0 as_user srun -N5 -n5 true
    contains "$(said)" "is not drained, and asks again in "
    expect 'questions' "$(grep -c '^sinfo' "$DIR/log/calls")" "$asked"
    lacks "$(sinfo -N -o %E)" "Prolog error"
    forget
}

@test "the same with slots in a shared directory" {
    mkdir -p "$DIR/slots" && rm -f "$DIR"/slots/*
    fail_all "breaker: { cluster: 3, job: 8, directory: $DIR/slots }"
    many_jobs
    sleep 2
    expect drained "$(by_us)" 3
    expect slots "$(ls "$DIR/slots" | grep -c '^cluster\.')" 3
    # a directory that nodes cannot trust counts nothing, so nothing is drained
    forget
    back
    chmod 777 "$DIR/slots"
    rm -f "$DIR"/nodes/*/run/xcloud/refused # as if some time had passed
    as_user srun -N8 -n8 true
    expect drained "$(drained | wc -l)" 0
    contains "$(said)" "root must own it, and nobody else write in it; drained nodes cannot be counted, so this one is not drained"
    chmod 755 "$DIR/slots"
}

@test "the same finding on more nodes of one job than job: is the policy's fault, and that is said" {
    fail_all 'breaker: { cluster: 8, job: 2 }'
    as_user srun -N8 -n8 --immediate=5 true >/dev/null 2>&1 || true
    sleep 3
    expect drained "$(by_us)" 2
    contains "$(said)" "say MEM01 already, the limit is 2: this is taken for a fault of the policy, not of the nodes"
    forget
}

@test "mode observe, mode bind and a policy that is not armed drain nothing, and count what they would" {
    for mode in observe bind; do
        site $mode "    checks:
      mem.total: { total: 4096, on_fail: drain }" <<<"$wide"
        run -0 as_user srun -N8 -n8 echo ran
        contains "$(said)" "p3 would be drained, and is not (mode $mode): xcloud: mem.total: 2048 GiB of memory, want 4096 GiB [MEM01] (hgx, job "
    done
    fail_all "$wide"
    rm "$DIR"/nodes/*/var/lib/xcloud/armed
    run -0 as_user srun -N8 -n8 echo ran
    contains "$(said)" "is not armed"
    contains "$(cat "$DIR/nodes/p3/run/xcloud/tally")" "prolog.would_drain 3"
    nodes_idle
    [ ! -e "$DIR/log/calls" ]
}

@test "a policy that does not load, and one with a check that is none, drain nothing" {
    fail_all "$wide"
    as_user srun -w p1 -N1 true || true # p1 keeps a good copy
    wait_drained 1
    back
    for node in $NODE_LIST; do echo 'mode: [' >"$DIR/nodes/$node/etc/xcloud/policy.yaml"; done
    run -0 as_user srun -N8 -n8 echo ran
    contains "$(cat "$DIR/log/prolog.p1")" "the last good policy is used, and drains no node: "
    contains "$(cat "$DIR/log/prolog.p1")" "p1 would be drained, and is not (the live policy does not load)"
    contains "$(cat "$DIR/log/prolog.p2")" "nothing is checked, and no node is drained"
    for node in $NODE_LIST; do
        sed 's/mem.total/mem.totl/' "$DIR/etc/site.yaml" >"$DIR/nodes/$node/etc/xcloud/policy.yaml"
        # `arm` refuses it; a newer release's may have been armed
        xcloud policy explain --prefix "$DIR/nodes/$node" | sed -n '1s/.*hash \([0-9a-f]*\).*/\1/p' \
            >"$DIR/nodes/$node/var/lib/xcloud/armed"
        contains "$(xcloud policy explain --prefix "$DIR/nodes/$node" | head -n 1)" ", armed"
    done
    run -0 as_user srun -N8 -n8 echo ran
    contains "$(cat "$DIR/log/prolog.p2")" 'there is no check "mem.totl"; did you mean "mem.total"?'
    nodes_idle
}

@test "scontrol is missing: the job does not run, and Slurm drains with its own words; uncounted it is not drained" {
    mkdir -p "$DIR/slots" "$DIR/half" && rm -f "$DIR"/slots/*
    SCONTROL=$DIR/half/scontrol fail_all "breaker: { cluster: 3, job: 8, directory: $DIR/slots }"
    run ! as_user srun -w p2 -N1 --immediate=5 echo ran
    lacks "$output" $'\nran'
    wait_drained 1
    contains "$(reason p2)" "drained Prolog error"
    contains "$(said)" "Slurm is left to drain the node by itself"
    back
    SCONTROL=$DIR/half/scontrol fail_all "$wide"
    run -0 as_user srun -w p3 -N1 echo ran
    contains "$(said)" "drained nodes cannot be counted, so this one is not drained"
    nodes_idle
}

# aws/aws-parallelcluster#6777: "Prolog hung on node"
@test "a read that never answers: the job runs after the deadline, and the node stays" {
    cat >"$DIR/hang.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t read(int fd, void *buffer, size_t size)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    if (strstr(path, "topo.xml"))
        fd = open(getenv("FIFO"), O_RDWR);
    return real(fd, buffer, size);
}
C
    gcc -shared -fPIC -o "$DIR/hang.so" "$DIR/hang.c"
    mkfifo "$DIR/fifo"
    site enforce <<<"$wide"
    sed -i "s#^\"#LD_PRELOAD=$DIR/hang.so FIFO=$DIR/fifo \"#" "$DIR/etc/prolog"
    local began=$SECONDS
    run -0 as_user srun -w p4 -N1 echo ran
    contains "$output" ran
    [ $((SECONDS - began)) -le 5 ]
    contains "$(said)" "no answer within 2000 ms, it hangs in $DIR/fifo: nothing is known of this node, and the job goes on"
    contains "$(cat "$DIR/nodes/p4/run/xcloud/tally")" "prolog.late 1"
    nodes_idle
}

@test "on_fail: refuse refuses the job on its node, which stays; warn is told; the epilog takes both away" {
    site enforce "    checks:
      mem.total: { total: 4096, on_fail: refuse }
      cpu.turbo: warn" <<<"$wide"
    put p5 /sys/devices/system/cpu/intel_pstate/no_turbo 1
    run -1 as_user srun -w p5 -N1 -n2 --overcommit echo ran
    lacks "$output" $'\nran'
    contains "$output" "xcloud-bind: p5: refused: mem.total: 2048 GiB of memory, want 4096 GiB [MEM01]"
    contains "$output" "xcloud-bind: p5: cpu.turbo: turbo is off"
    expect refusals "$(grep -c 'refused: mem' <<<"$output")" 1
    for _ in $(seq 50); do [ -z "$(ls "$DIR/nodes/p5/run/xcloud/refuse")" ] && break; sleep 0.1; done
    expect marks "$(ls "$DIR/nodes/p5/run/xcloud/refuse")" ""
    site enforce "    checks:
      cpu.turbo: warn" <<<"$wide"
    run -0 as_user srun -w p5 -N1 -n1 echo ran
    contains "$output" "xcloud-bind: p5: cpu.turbo: turbo is off"
    contains "$output" ran
    nodes_idle
}

@test "jobs: checks: skip by partition and reservation" {
    fail_all "$wide
jobs:
  - { when: { partition: dev }, checks: skip }
  - { when: { reservation: 'maint*' }, checks: skip }"
    scontrol create partitionname=dev nodes=ALL oversubscribe=force:4 state=up
    run -0 as_user srun -p dev -w p6 -N1 echo ran
    scontrol delete partitionname=dev
    scontrol create reservation=maint1 users=nobody nodes=p6 starttime=now duration=10 flags=ignore_jobs >/dev/null
    run -0 as_user srun --reservation=maint1 -w p6 -N1 echo ran
    scontrol delete reservation=maint1
    expect drained "$(drained)" ""
    as_user srun -w p6 -N1 --immediate=5 true || true
    wait_drained 1
}

health() { # NODE [OPTIONS]: as Slurm runs it
    env -i SLURMD_NODENAME="$1" SLURM_CONF="$SLURM_CONF" "$DIR/etc/health"
}

# mej/nhc#134: what an administrator has drained stays
@test "health: drains, and brings back what the policy lists when it is mended; no other's drain, no lemon" {
    site enforce <<<"$wide"
    # at slurmd's start it has run with nothing in its environment
    expect environment "$(grep -c -vE '^(PWD|SHLVL|_|SLURMD_NODENAME|SLURM_CONF)=' "$DIR/log/env.health.p1")" 0
    sed -i 's/^classes:/  resume: { checks: [cpu.turbo], after: 2 clean runs, quiet: 1s, lemon: 2 drains in 7d }\nclasses:/' "$DIR/etc/site.yaml"
    for node in p1 p2 p3; do
        cp "$DIR/etc/site.yaml" "$DIR/nodes/$node/etc/xcloud/policy.yaml"
        xcloud policy arm --prefix "$DIR/nodes/$node" >/dev/null
        put $node /sys/devices/system/cpu/intel_pstate/no_turbo 1
    done
    lose p2 /etc/nccl/topo.xml # not one of the listed
    for node in p1 p2 p3; do run -1 health $node; done
    expect drained "$(drained | xargs)" "p1 p2 p3"
    scontrol update nodename=p3 state=drain reason="dimm on order"
    for node in p1 p2 p3; do mend $node; done
    sleep 1
    rm -f "$DIR/log/calls"
    for node in p1 p2 p3; do run -0 health $node; done
    [ ! -e "$DIR/log/calls" ] # a clean run asks nobody
    expect drained "$(drained | xargs)" "p1 p2 p3"
    for node in p1 p2 p3; do run -0 health $node; done
    expect drained "$(drained | xargs)" "p2 p3"
    contains "$(reason p3)" "dimm on order"
    contains "$(cat "$DIR/log/health.p1")" "p1 is back after 2 clean runs; it was drained for cpu.turbo"
    contains "$(cat "$DIR/log/health.p3")" "p3 is not drained by us any more"
    # the second drain within a week: it stays
    put p1 /sys/devices/system/cpu/intel_pstate/no_turbo 1
    run -1 health p1
    mend p1
    sleep 1
    for _ in 1 2 3; do run -0 health p1; done
    expect drained "$(drained | xargs)" "p1 p2 p3"
    expect lines "$(grep -c 'stays drained: it was drained 2 times' "$DIR/log/health.p1")" 1
}

@test "health: a drain of ours whose record was lost is remembered again, and comes back" {
    site enforce <<<"$wide"
    sed -i 's/^classes:/  resume: { checks: [topo.file], after: 2 clean runs, quiet: 1s }\nclasses:/' "$DIR/etc/site.yaml"
    cp "$DIR/etc/site.yaml" "$DIR/nodes/p1/etc/xcloud/policy.yaml"
    xcloud policy arm --prefix "$DIR/nodes/p1" >/dev/null
    lose p1 /etc/nccl/topo.xml
    run -1 health p1
    expect drained "$(drained)" p1
    rm "$DIR/nodes/p1/var/lib/xcloud/drained" # killed in between, or a full disk
    run -1 health p1
    contains "$(cat "$DIR/nodes/p1/var/lib/xcloud/drained")" "reason xcloud: topo.file"
    mend p1
    for _ in 1 2 3; do
        sleep 1
        run -0 health p1
    done
    cat "$DIR/log/health.p1" "$DIR/nodes/p1/var/lib/xcloud/drained" >&2
    expect drained "$(drained)" ""
}

# nebius/soperator#1232: drained for "gres/gpu count reported lower" because the driver was loaded late. Ours
# comes back by itself where the policy says so; Slurm's own drain is not ours to lift.
@test "health: a GPU that came late is no drain for ever, and Slurm's own drain for it is left" {
    site enforce <<<"$wide"
    sed -i 's/^classes:/  resume: { checks: [gpu.count], after: 2 clean runs, quiet: 1s }\nclasses:/' "$DIR/etc/site.yaml"
    for node in p1 p2; do
        cp "$DIR/etc/site.yaml" "$DIR/nodes/$node/etc/xcloud/policy.yaml"
        xcloud policy arm --prefix "$DIR/nodes/$node" >/dev/null
        lose $node /proc/driver/nvidia/gpus/0000:18:00.0
    done
    scontrol update nodename=p2 state=drain reason="gres/gpu count reported lower than configured (7 < 8)"
    for node in p1 p2; do run -1 health $node; done
    contains "$(reason p1)" "drained xcloud: gpu.count 0000:18:00.0: the driver does not have it"
    for node in p1 p2; do mend $node; done
    sleep 1
    for node in p1 p2 p1 p2; do run -0 health $node; done
    expect drained "$(drained)" p2
    contains "$(reason p2)" "gres/gpu count reported lower than configured (7 < 8)"
}

# mej/nhc#161: a hanging sinfo became a failed check, and whole racks were drained
@test "a controller that hangs changes no verdict: fit nodes never ask it, and a bad one is not drained uncounted" {
    site enforce <<<"$wide"
    lose p2 /etc/nccl/topo.xml
    mkdir -p "$DIR/hung"
    for command in scontrol sinfo; do
        printf '#!/bin/sh\nexec sleep 60\n' >"$DIR/hung/$command"
        chmod 755 "$DIR/hung/$command"
    done
    SCONTROL=$DIR/hung/scontrol site enforce <<<"$wide"
    local began=$SECONDS
    run -0 as_user srun -w p1 -N1 echo ran
    [ $((SECONDS - began)) -le 4 ]
    run -0 as_user srun -w p2 -N1 echo ran
    contains "$(cat "$DIR/log/prolog.p2")" "no answer within 5000 ms; drained nodes cannot be counted, so this one is not drained"
    [ $((SECONDS - began)) -le 12 ]
    nodes_idle
}

@test "health: the text file, the results, and --report for NHC" {
    site enforce <<<"$wide"
    lose p7 /etc/nccl/topo.xml
    run -1 "$STAGE/sbin/xcloud-health" --prefix "$DIR/nodes/p7" --node p7 --report
    contains "$output" "FAIL    topo.file /etc/nccl/topo.xml: the topology file is not there"
    expect drained "$(drained)" ""
    wrapper health --textfile "$DIR/node.prom"
    run -1 health p7
    expect drained "$(drained)" p7
    contains "$(cat "$DIR/node.prom")" 'xcloud_check_status{check="topo.file",code="TOP01",on_fail="drain",device="/etc/nccl/topo.xml"} 2'
    contains "$(cat "$DIR/node-acts.prom")" "xcloud_drained 1"
    contains "$(cat "$DIR/node-acts.prom")" 'xcloud_drained_total{program="health"} 1'
    contains "$(cat "$DIR/node-acts.prom")" 'mode="enforce",class="hgx",armed="1"} 1'
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$DIR/nodes/p7/run/xcloud/health.json"
    wrapper health
}

@test "health: --report has all that is wrong, the worst consequence first" {
    site enforce "    checks:
      cpu.turbo: warn
      gpu.pcie: refuse
      topo.file: drain" <<<"$wide"
    put p7 /sys/devices/system/cpu/intel_pstate/no_turbo 1
    put p7 /sys/bus/pci/devices/0000:3a:00.0/current_link_width 8
    put p7 /proc/sys/kernel/numa_balancing 1 # nobody asked
    run -0 "$STAGE/sbin/xcloud-health" --prefix "$DIR/nodes/p7" --node p7 --report
    lacks "$output" topo.file
    lose p7 /etc/nccl/topo.xml
    run -1 "$STAGE/sbin/xcloud-health" --prefix "$DIR/nodes/p7" --node p7 --report
    expect order "$(sed -n 's/^xcloud-health: \([A-Z]\+\) *\([a-z.]*\).*/\1 \2/p' <<<"$output" | xargs)" \
        "FAIL topo.file FAIL gpu.pcie FAIL cpu.turbo FAIL self.scontrol WARN numa.balancing" # it has none
    contains "$output" "[TOP01] (on_fail: drain)"
    contains "$output" "(on_fail: refuse)"
    contains "$output" "(on_fail: warn)"
    expect drained "$(drained)" ""
}

@test "no policy at all: said once a boot, with what to do; nothing is checked or asked" {
    for program in prolog health epilog; do
        for round in 1 2; do
            run -0 env -i SLURMD_NODENAME=p9 SLURM_JOB_ID=9 "$STAGE/sbin/xcloud-$program" --prefix "$DIR/nodes/bare"
            if [ $program$round = prolog1 ]; then
                contains "$output" "xcloud-prolog: there is no policy: "
                contains "$output" 'nothing is checked on this node. "xcloud policy learn" writes a first one'
            else
                expect "$program, round $round" "$output" ""
            fi
        done
    done
    run -0 env -i SLURMD_NODENAME=p9 "$STAGE/sbin/xcloud-health" --prefix "$DIR/nodes/bare" --report
    contains "$output" '"xcloud policy learn"'
}

@test "metrics: a node that an administrator brought back is not said to be drained for ever" {
    site enforce <<<"$wide"
    wrapper health --textfile "$DIR/node.prom"
    lose p6 /etc/nccl/topo.xml
    run -1 health p6
    mend p6
    run -0 health p6
    contains "$(cat "$DIR/node-acts.prom")" "xcloud_drained 1"
    scontrol update nodename=p6 state=resume
    rm -f "$DIR/log/calls"
    run -0 health p6
    [ ! -e "$DIR/log/calls" ] # no job has run: nothing says that it is back, and nobody is asked
    run -0 as_user srun -w p6 -N1 true
    sed -i 's/^past .*/past 1000/' "$DIR/nodes/p6/var/lib/xcloud/drained" # as if a minute had passed
    run -0 health p6
    expect questions "$(grep -c . "$DIR/log/calls")" 1
    contains "$(cat "$DIR/node-acts.prom")" "xcloud_drained 0"
    contains "$(cat "$DIR/log/health.p6")" "p6 is not drained by us any more"
    run -0 health p6
    expect questions "$(grep -c . "$DIR/log/calls")" 1
    # a job that was there before a drain is no sign: Slurm is asked, and knows better
    lose p6 /etc/nccl/topo.xml
    run -1 health p6
    mend p6
    sed -i 's/^past .*/past 1000/' "$DIR/nodes/p6/var/lib/xcloud/drained"
    run -0 health p6
    contains "$(cat "$DIR/node-acts.prom")" "xcloud_drained 1"
    wrapper health
}

@test "inside NHC: check_xcloud fails with the finding, and is quiet about our own trouble" {
    site enforce <<<"$wide"
    lose p7 /etc/nccl/topo.xml
    cat >"$DIR/nhc" <<'SH'
die() { shift; echo "die: $*"; }
dbg() { echo "dbg: $*"; }
. "$1"
shift
check_xcloud "$@"
SH
    run -1 bash "$DIR/nhc" "$STAGE/share/doc/xcloud-bind/nhc/xcloud.nhc" --prefix "$DIR/nodes/p7" --node p7
    contains "$output" "die: check_xcloud: topo.file /etc/nccl/topo.xml: the topology file is not there"
    run -0 bash "$DIR/nhc" "$STAGE/share/doc/xcloud-bind/nhc/xcloud.nhc" --prefix "$DIR/nodes/p6" --node p6
    echo 'mode: [' >"$DIR/nodes/p7/etc/xcloud/policy.yaml"
    run -0 bash "$DIR/nhc" "$STAGE/share/doc/xcloud-bind/nhc/xcloud.nhc" --prefix "$DIR/nodes/p7" --node p7
    expect drained "$(drained)" ""
}

@test "the epilog drains for a process that has the job's GPU open still, and for no other GPU" {
    site enforce "    checks:
      gpu.leftovers: drain" <<<"$wide"
    for node in p1 p2; do
        touch "$DIR/dirty/$node"
        mkdir -p "$ROOTS/$node/proc/6000/fd"
        echo train >"$ROOTS/$node/proc/6000/comm"
    done
    ln -s /dev/nvidia7 "$ROOTS/p2/proc/6000/fd/5"
    # the prolog finds nothing yet; what the job leaves is there when it ends
    run -0 as_user srun -w p1 -N1 --gres=gpu:1 sleep 1
    wait_epilog() { for _ in $(seq 50); do grep -qs "epilog.runs" "$DIR/nodes/$1/run/xcloud/tally" && return; sleep 0.1; done; return 1; }
    wait_epilog p1
    expect drained "$(drained)" ""
    gpu=$(sed -n 's/.*"SLURM_JOB_GPUS=\(.*\)".*/\1/p; s/^SLURM_JOB_GPUS=//p' "$DIR/log/env.epilog.p1" | tail -n 1)
    as_user srun -w p1 -N1 --gres=gpu:1 sleep 2 &
    sleep 1
    ln -s "/dev/nvidia$gpu" "$ROOTS/p1/proc/6000/fd/5"
    wait $!
    wait_drained 1
    contains "$(reason p1)" "drained xcloud: gpu.leftovers"
    contains "$(reason p1)" "process train (6000)"
    run -0 as_user srun -w p2 -N1 --gres=gpu:1 true
    wait_epilog p2
    expect drained "$(drained)" p1
}

@test "who holds the tally holds no prolog up" {
    site enforce <<<"$wide"
    mkdir -p "$DIR/nodes/p1/run/xcloud"
    run -0 flock "$DIR/nodes/p1/run/xcloud/tally.lock" timeout 20 env SLURM_JOB_ID=5 SLURMD_NODENAME=p1 \
        "$STAGE/sbin/xcloud-prolog" --prefix "$DIR/nodes/p1"
}

@test "thirty prologs at once on one node: the counters and the tally are whole" {
    site enforce <<<"$wide"
    for i in $(seq 30); do
        env -i SLURMD_NODENAME=p8 SLURM_CONF="$SLURM_CONF" SLURM_JOB_ID=$((9000 + i)) "$DIR/etc/prolog" 3>&- &
    done
    wait
    contains "$(cat "$DIR/nodes/p8/run/xcloud/tally")" "prolog.runs 30"
    expect head "$(head -n 1 "$DIR/nodes/p8/run/xcloud/counters.prolog")" "xcloud-counters 1"
    expect 'files left' "$(cd "$DIR/nodes/p8/run/xcloud" && ls counters.prolog* tally* | xargs)" "counters.prolog counters.prolog.lock tally tally.lock"
    contains "$(cat "$DIR/nodes/p8/run/xcloud/counters.prolog")" "kmsg.sequence "
}

@test "an option that is wrong, a path that is not absolute, a word too much: each is named, with status 2" {
    run -2 "$STAGE/sbin/xcloud-health" --policy site.yaml
    contains "$output" 'xcloud-health: --policy is "site.yaml"; expected an absolute path'
    run -2 "$STAGE/sbin/xcloud-epilog" --prefix .
    contains "$output" '--prefix is "."; expected an absolute path'
    run -2 "$STAGE/sbin/xcloud-prolog" --report p1
    contains "$output" 'xcloud-prolog: "p1" is too much'
    run -2 "$STAGE/sbin/xcloud-prolog" --textfile /x
}
