#!/usr/bin/env bats
# What is missing, broken or of another version stops no job, drains no node, and is said once.

load common.bash

setup_file() { NODES=2 cluster_up; }
teardown_file() { cluster_down; }
setup() {
    bind_policy <<<'cpus: {housekeeping: none}'
    rm -rf "$DIR"/nodes/*/run/xcloud/disabled "$DIR"/nodes/*/var
    plugstack "optional $PLUGIN policy=$DIR/etc/policy.yaml machine=$DIR/nodes/%n"
}
plugstack() { echo "$1" >"$DIR/etc/plugstack.conf"; }
library=$STAGE/lib/xcloud-bind/libxcloud-step.so

@test "without a policy jobs run as they did" {
    rm "$DIR/etc/policy.yaml"
    run -0 as_user srun -N1 -n2 echo ran
    expect output "$output" "ran
ran"
    run -0 as_user srun -N1 -n2 --xcloud-bind echo ran
    contains "$output" "no policy"
}

@test "a policy that breaks while jobs run: the last good copy binds, and says why" {
    xcloud policy install --prefix "$DIR/nodes/n1" "$DIR/etc/policy.yaml"
    echo 'mode: [' | policy
    run -0 masks -w n1 -N1 -n2 -c$HALF --gres=gpu:2
    contains "$output" "0 $UPPER"
    contains "$output" "policy.yaml:"
    contains "$output" "last good"
    nodes_idle
}

@test "a broken policy without a last good copy: unbound, one line a node" {
    echo 'mode: [' | policy
    run -0 as_user srun -N2 -n4 echo ran
    expect ran "$(grep -c '^ran$' <<<"$output")" 4
    expect lines "$(grep -c 'policy.yaml:' <<<"$output")" 2
    nodes_idle
}

@test "on_error=refuse ends the step with 1 and leaves the node" {
    echo 'mode: [' | policy
    plugstack "optional $PLUGIN policy=$DIR/etc/policy.yaml machine=$DIR/nodes/%n on_error=refuse"
    run -1 as_user srun -N1 -n2 echo ran
    lacks "$output" $'\nran'
    contains "$output" "refused"
    nodes_idle
}

@test "a policy that is not root's is not believed" {
    chown nobody "$DIR/etc/policy.yaml"
    run -0 as_user srun -N1 -n1 echo ran
    contains "$output" "root must own it"
    contains "$output" "ran"
}

@test "the kill switch ends everything, and says so only to those who ask" {
    touch "$DIR/nodes/n1/run/xcloud/disabled"
    run -0 as_user srun -w n1 -N1 -n1 --xcloud-bind=verbose true
    expect line "$output" "xcloud-bind: n1: switched off here by /run/xcloud/disabled"
    run -0 masks -w n1 -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=none
    expect masks "$output" "0 $(list 0 $LAST)
1 $(list 0 $LAST)"
}

@test "mode=off in plugstack.conf does the same" {
    plugstack "optional $PLUGIN mode=off"
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=none
    expect masks "$output" "0 $(list 0 $LAST)
1 $(list 0 $LAST)"
}

@test "the engine's library is missing: jobs run, task 0 says it" {
    mv "$library" "$library.away"
    run as_user srun -N1 -n2 echo ran
    mv "$library.away" "$library"
    expect status "$status" 0
    expect ran "$(grep -c '^ran$' <<<"$output")" 2
    expect lines "$(grep -c 'running unbound' <<<"$output")" 1
    nodes_idle
}

@test "the library speaks another ABI: jobs run, task 0 says it" {
    mv "$library" "$library.away"
    echo 'const void *xc_step_api(unsigned abi) { (void)abi; return 0; }' |
        gcc -shared -fPIC -x c -o "$library" -
    run as_user srun -N1 -n2 echo ran
    mv -f "$library.away" "$library"
    expect status "$status" 0
    contains "$output" "another version"
    expect ran "$(grep -c '^ran$' <<<"$output")" 2
}

@test "a plugin of another Slurm release, installed as optional, breaks neither srun nor sbatch nor slurmd" {
    cat >"$DIR/other.c" <<'C'
const char plugin_name[] = "xcloud_bind", plugin_type[] = "spank";
const unsigned int plugin_version = 0x130a00, spank_plugin_version = 1;
C
    gcc -shared -fPIC -o "$DIR/other.so" "$DIR/other.c"
    plugstack "optional $DIR/other.so"
    "$HERE/cluster" restart "$DIR"
    run -0 as_user srun -N2 -n2 echo ran
    expect ran "$(grep -c '^ran$' <<<"$output")" 2
    run -0 as_user sbatch -Q --wait -o /dev/null --wrap true
    plugstack "optional $PLUGIN policy=$DIR/etc/policy.yaml machine=$DIR/nodes/%n"
    "$HERE/cluster" restart "$DIR"
    nodes_idle
}

@test "the plugin's file is missing: optional, so jobs run" {
    plugstack "optional $DIR/nowhere.so"
    run -0 as_user srun -N1 -n1 echo ran
    contains "$output" ran
    nodes_idle
}

@test "no snapshot and no way to make one: unbound, and it says what to run" {
    mv "$STAGE/bin/xcloud" "$STAGE/bin/xcloud.away"
    rm -f "$DIR"/nodes/n1/run/xcloud/node.snapshot
    run as_user srun -w n1 -N1 -n1 echo ran
    mv "$STAGE/bin/xcloud.away" "$STAGE/bin/xcloud"
    expect status "$status" 0
    contains "$output" "no snapshot"
    contains "$output" "ran"
}

@test "a snapshot that cannot be written: unbound, with the reason" {
    rm -f "$DIR"/nodes/n1/run/xcloud/node.snapshot
    mkdir "$DIR/nodes/n1/run/xcloud/node.snapshot"
    run as_user srun -w n1 -N1 -n1 echo ran
    rmdir "$DIR/nodes/n1/run/xcloud/node.snapshot"
    expect status "$status" 0
    contains "$output" "cannot write it: Is a directory"
    contains "$output" ran
}

@test "a garbled snapshot is made anew" {
    run -0 as_user srun -w n1 -N1 -n1 true
    head -c 4096 /dev/urandom >"$DIR/nodes/n1/run/xcloud/node.snapshot"
    run -0 masks -w n1 -N1 -n2 -c$HALF --gres=gpu:2
    expect masks "$output" "0 $UPPER
1 $LOWER"
}

@test "a refusal on one of two nodes ends the step at once with kill_on_refuse" {
    plugstack "optional $PLUGIN policy=$DIR/nodes/%n/policy.yaml machine=$DIR/nodes/%n on_error=refuse kill_on_refuse"
    cp "$DIR/etc/policy.yaml" "$DIR/nodes/n1/policy.yaml"
    echo 'mode: [' >"$DIR/nodes/n2/policy.yaml"
    began=$(date +%s%N)
    run as_user srun -N2 -n2 sleep 20
    took=$((($(date +%s%N) - began) / 1000000))
    [ "$status" -ne 0 ]
    contains "$output" "refused"
    # a bound against hanging for sleep's 20 s, not a measurement
    echo "# the step ended after $took ms" >&3
    [ "$took" -lt 10000 ] || { echo "$took ms"; false; }
    nodes_idle
}

@test "nodes with different policies are told of" {
    plugstack "optional $PLUGIN policy=$DIR/nodes/%n/policy.yaml machine=$DIR/nodes/%n"
    cp "$DIR/etc/policy.yaml" "$DIR/nodes/n1/policy.yaml"
    { cat "$DIR/etc/policy.yaml"; echo "# other"; } >"$DIR/nodes/n2/policy.yaml"
    hash=$(cd /tmp && xcloud policy check "$DIR/nodes/n1/policy.yaml" | grep -oE '[0-9a-f]{16}')
    run -0 as_user env XCLOUD_POLICY_HASH="$hash" srun -N2 -n2 true
    expect lines "$(grep -c "is not the submit host's" <<<"$output")" 1
    contains "$output" "n2"
}

@test "a plugin on the submit host alone is harmless" {
    # n2's slurmd has an empty plugstack.conf
    sed "s#^PlugStackConfig=.*#PlugStackConfig=$DIR/etc/none.conf#" "$DIR/etc/slurm.conf" >"$DIR/etc/slurm-n2.conf"
    echo 'DebugFlags=NO_CONF_HASH' >>"$DIR/etc/slurm-n2.conf"
    : >"$DIR/etc/none.conf"
    kill "$(cat "$DIR/run/slurmd-n2.pid")"
    sleep 1
    slurmd -N n2 -f "$DIR/etc/slurm-n2.conf"
    nodes_idle
    run -0 as_user srun -w n2 -N1 -n2 --xcloud-bind=verbose echo ran
    expect ran "$(grep -c '^ran$' <<<"$output")" 2
    "$HERE/cluster" restart "$DIR"
}
