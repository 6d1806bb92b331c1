#!/usr/bin/env bats
# The words after --xcloud-bind=, and who may say them.

load common.bash

setup_file() { NODES=1 cluster_up; }
teardown_file() { cluster_down; }
setup() { bind_policy <<<'cpus: {housekeeping: none}'; }

@test "a wrong word is refused on the submit host, before any allocation, with the valid ones" {
    jobs=$(squeue -h -t all -o %i | wc -l)
    run -1 as_user srun -n1 --xcloud-bind=verbos true
    contains "$output" "verbose"
    contains "$output" "memory=preferred"
    expect jobs "$(squeue -h -t all -o %i | wc -l)" "$jobs"
    run -1 as_user sbatch --wrap true --xcloud-bind=smt=2
    contains "$output" "smt=all"
}

@test "help prints the words, asks nothing of Slurm and ends with 0" {
    run -0 env SLURM_CONF="$SLURM_CONF" srun --xcloud-bind=help -n1 true
    for word in on off verbose explain dry strict gpus= smt= memory= profile=; do
        contains "$output" "$word"
    done
}

@test "srun --help shows the option" {
    run -0 srun --help
    contains "$output" "--xcloud-bind"
}

@test "a wrong word that comes by the environment is ignored with a line" {
    run -0 as_user env _SLURM_SPANK_OPTION_xcloud_bind_xcloud_bind=nonsense srun -n1 echo ran
    contains "$output" ran
    contains "$output" "nonsense"
}

@test "dry prints the plan of the real allocation and runs nothing" {
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=dry touch "$DIR/home/ran"
    [ ! -e "$DIR/home/ran" ]
    contains "$output" "$UPPER"
    contains "$output" "0000:1"
}

@test "an environment of thousands of variables holds explain up for no more than a moment" {
    run -0 as_user python3 -c 'import os
os.environ.update({"NCCL_X%d" % i: "v" for i in range(5000)}, XCLOUD_ENV="A=," * 40000)
os.execvp("timeout", ["timeout", "60", "srun", "-N1", "--xcloud-bind=explain", "echo", "ran"])'
    contains "$output" ran
    local open_us
    open_us=$(sed -n 's/^hooks took [0-9]* us in slurmstepd (\([0-9]*\) before.*/\1/p' <<<"$output")
    [ "$open_us" -lt 250000 ]
}

@test "explain says why, the environment and what the hooks took" {
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=explain true
    contains "$output" "NUMA 1"
    contains "$output" "us in slurmstepd"
    contains "$output" "PIX"
}

@test "a word that the policy does not permit is dropped with a line; verbose needs no permission" {
    printf 'cpus: {housekeeping: none}\nbind: {users_may: [memory]}\n' | bind_policy
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=off,verbose
    contains "$output" "off"
    contains "$output" "0 $UPPER"
    contains "$output" "CPU Affinity"
}

@test "off, explained: what Slurm has set, without the reasons of a plan that was not" {
    bind_policy <<<'cpus: {housekeeping: none}'
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=off,explain
    contains "$output" "not bound (off): this is what Slurm has set"
    lacks "$output" "rank 0: "
}

@test "default: ask binds only with the option, default: never not even then" {
    printf 'cpus: {housekeeping: none}\nbind: {default: ask}\n' | bind_policy
    expect unbound "$(masks -N1 -n2 -c$HALF --gres=gpu:2)" "0 $LOWER
1 $UPPER"
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind bash -c "echo \$SLURM_PROCID \$($allowed)"
    contains "$output" "0 $UPPER"
    printf 'cpus: {housekeeping: none}\nbind: {default: never}\n' | bind_policy
    run -0 masks -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=none --xcloud-bind
    contains "$output" "0 $(list 0 $LAST)"
    contains "$output" "never"
}

@test "a profile changes the environment; an unknown one is named with the known" {
    cat <<'Y' | policy
version: 1
mode: bind
defaults: {cpus: {housekeeping: none}}
classes:
  - name: all
    profiles: {big: {env: {SIZE: large}}}
Y
    run -0 as_user srun -n1 --xcloud-bind=profile=big bash -c 'echo SIZE=$SIZE'
    contains "$output" SIZE=large
    run -0 as_user srun -n1 --xcloud-bind=profile=small true
    contains "$output" "big"
}

@test "strict refuses what cannot be done as asked, and the node stays" {
    # the selector matches no NIC
    printf 'cpus: {housekeeping: none}\nnics: {compute: {pci: "15b3:ffff"}}\n' | bind_policy
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 echo ran
    contains "$output" ran
    run as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --xcloud-bind=strict echo ran
    [ "$status" -ne 0 ]
    lacks "$output" $'\nran'
    contains "$output" "refused"
    nodes_idle
}

@test "observe sets nothing and says so when asked" {
    printf 'version: 1\nmode: observe\ndefaults: {cpus: {housekeeping: none}}\n' | policy
    run -0 as_user srun -N1 -n2 -c$HALF --gres=gpu:2 --cpu-bind=none --xcloud-bind=verbose bash -c "$allowed"
    contains "$output" "mode observe"
    contains "$output" $'\n'"$(list 0 $LAST)"
}
