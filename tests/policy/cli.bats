#!/usr/bin/env bats
# xcloud policy, as a person or Ansible runs it. XCLOUD names the program (default: ./xcloud).

setup() {
    XCLOUD=${XCLOUD:-./xcloud}
    top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    prefix=$(mktemp -d)
    chmod 755 "$prefix"
    unset SLURM_CONF
}

teardown() {
    rm -rf "$prefix"
}

@test "check says ok in one line, exit 0" {
    run "$XCLOUD" policy check "$top/etc/policy/hgx-h100.yaml"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" =~ ^"ok: 1 class, hash "[0-9a-f]{16}$ ]]
}

@test "check of a wrong file is one line that starts with its place, exit 1" {
    run "$XCLOUD" policy check - <<<$'version: 1\ndefaults:\n  bind: { memry: bind }'
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == "standard input:3:11: unknown key \"memry\" in bind; expected "*"did you mean \"memory\"?" ]]
}

@test "check of a missing file is exit 2" {
    run "$XCLOUD" policy check "$prefix/none.yaml"
    [ "$status" -eq 2 ]
    [[ "$output" == *"$prefix/none.yaml"*"No such file"* ]]
}

@test "unknown subcommands and options are exit 2 with the nearest" {
    run "$XCLOUD" policy instal
    [ "$status" -eq 2 ]
    [[ "$output" == *"did you mean install?"* ]]
    run "$XCLOUD" policy check --bogus
    [ "$status" -eq 2 ]
    local words
    for words in "policy explain --polcy x" "check --polcy=x" "plan --polcy x" "host apply --polcy x" \
        "topo verify --polcy x" "nccl --polcy x"; do
        # shellcheck disable=SC2086
        run "$XCLOUD" $words
        [ "$status" -eq 2 ]
        [[ "$output" == *"did you mean --policy?"* ]]
    done
    run "$XCLOUD" check --json=3
    [ "$status" -eq 2 ]
    [[ "$output" == *"--json takes no value"* ]]
    run -2 "$XCLOUD" policy explain --help=keys
    [[ "$output" == *"--help takes no value"* ]]
}

@test "explain names value, layer and line" {
    run "$XCLOUD" policy explain --policy "$top/tests/policy/good/sketch.yaml" --node gpu001 \
        --partition dev --profile big-messages
    [ "$status" -eq 0 ]
    [[ "$output" == *"gpu001, class hgx-h100"* ]]
    grep -Eq '^bind.default +ask +jobs\[0\] +.*sketch.yaml:64$' <<<"$output"
    grep -Eq '^cpus.whole_cores +off +class hgx-h100 ' <<<"$output"
    grep -Eq '^env.NCCL_DEBUG +INFO \(default\) +profile big-messages ' <<<"$output"
    run "$XCLOUD" policy explain --policy "$top/tests/policy/good/sketch.yaml" --node gpu001 --profile x
    [ "$status" -eq 2 ]
    [[ "$output" == *"the policy has big-messages"* ]]
}

@test "explain without a policy shows what is built in" {
    run "$XCLOUD" policy explain --prefix "$prefix"
    [ "$status" -eq 0 ]
    [[ "$output" == "There is no policy"* ]]
    grep -Eq '^mode +observe +built in$' <<<"$output"
}

@test "install shows what changes, and drains nothing until armed" {
    run "$XCLOUD" policy install --prefix "$prefix" "$top/etc/policy/hgx-h100.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"is new"*"only reports what it would drain, until xcloud policy arm or, by itself, after 24h"* ]]
    cmp "$top/etc/policy/hgx-h100.yaml" "$prefix/etc/xcloud/policy.yaml"
    cmp "$top/etc/policy/hgx-h100.yaml" "$prefix/var/lib/xcloud/policy.good"
    [ "$(stat -c %a "$prefix/etc/xcloud/policy.yaml" "$prefix/etc/xcloud" | xargs)" = "644 755" ]

    sed 's/count: 8, rate/count: 7, rate/' "$top/etc/policy/hgx-h100.yaml" >"$prefix/new.yaml"
    run "$XCLOUD" policy install --prefix "$prefix" "$prefix/new.yaml"
    [ "$status" -eq 0 ]
    grep -Eq '^hgx-h100 +expect.nics.count +8 +7$' <<<"$output"
    [ "$(grep -c '^hgx-h100' <<<"$output")" -eq 1 ]
}

@test "install shows on captured machines who would go elsewhere" {
    "$top/tests/machines/make-machine" two-node-2cpu "$BATS_TEST_TMPDIR/small"
    "$XCLOUD" policy install --prefix "$prefix" "$top/etc/policy/minimal.yaml"
    printf 'version: 1\ndefaults: {bind: {memory: none}}\n' >"$prefix/new.yaml"
    run "$XCLOUD" policy install --prefix "$prefix" --machine "$BATS_TEST_TMPDIR/small" "$prefix/new.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"small was planned"*"preferred 1"*"small is planned"*"none"* ]]
    run "$XCLOUD" policy install --prefix "$prefix" --machine "$BATS_TEST_TMPDIR/small" "$prefix/new.yaml"
    [[ "$output" == *"small: the same plan"* ]]
}

@test "install refuses a wrong file and leaves the one in place" {
    "$XCLOUD" policy install --prefix "$prefix" "$top/etc/policy/minimal.yaml"
    run "$XCLOUD" policy install --prefix "$prefix" "$top/tests/policy/bad/mode-typo.yaml"
    [ "$status" -eq 1 ]
    cmp "$top/etc/policy/minimal.yaml" "$prefix/etc/xcloud/policy.yaml"
}

@test "arm arms the bytes that are installed, and no others" {
    run "$XCLOUD" policy arm --prefix "$prefix"
    [ "$status" -eq 2 ]
    "$XCLOUD" policy install --prefix "$prefix" "$top/etc/policy/minimal.yaml"
    run "$XCLOUD" policy arm --prefix "$prefix"
    [ "$status" -eq 0 ]
    run "$XCLOUD" policy explain --prefix "$prefix"
    [[ "$output" == *", armed"* ]]
    echo "# more" >>"$prefix/etc/xcloud/policy.yaml"
    run "$XCLOUD" policy explain --prefix "$prefix"
    [[ "$output" == *"not armed: it drains nothing"* ]]
    echo "moed: bind" >>"$prefix/etc/xcloud/policy.yaml"
    run "$XCLOUD" policy arm --prefix "$prefix"
    [ "$status" -eq 1 ]
    run "$XCLOUD" policy explain --prefix "$prefix"
    [[ "$output" == *"the last good copy; the live file does not load: "*"unknown key \"moed\""* ]]
}

@test "arm refuses a file whose checks are none: with it nothing would be checked" {
    "$XCLOUD" policy install --prefix "$prefix" "$top/etc/policy/minimal.yaml"
    printf 'version: 1\nmode: enforce\ndefaults:\n  checks: { gpu.cuont: drain }\n' >"$prefix/etc/xcloud/policy.yaml"
    run "$XCLOUD" policy arm --prefix "$prefix"
    [ "$status" -eq 1 ]
    [[ "$output" == *'there is no check "gpu.cuont"; did you mean "gpu.count"?'* ]]
    run "$XCLOUD" policy explain --prefix "$prefix"
    [[ "$output" != *", armed"* ]]
}

@test "slurm-conf prints the NodeName words" {
    run bash -c "'$XCLOUD' policy slurm-conf --cpus 0 2>/dev/null"
    [ "$status" -eq 0 ]
    [[ "$output" =~ ^CpuSpecList=[0-9,-]+$ ]]
    run "$XCLOUD" policy slurm-conf --cpus 0-
    [ "$status" -eq 2 ]
    run "$XCLOUD" policy slurm-conf --cpus 60000
    [ "$status" -eq 2 ]
    [[ "$output" == *"does not have"* ]]
}

@test "check names NCCL's variables that do something else than is meant, and the policy is right all the same" {
    cat >"$BATS_TEST_TMPDIR/nccl.yaml" <<'YAML'
version: 1
defaults:
  env:
    NCCL_DEBGU: WARN
    NCCL_NTHREADS: { value: "${cores}" }
classes:
  - name: a
    profiles: { big: { env: { NCCL_CUMEM_ENABLE: { value: 0 }, NCCL_MNNVL_ENABLE: { value: 1 } } } }
YAML
    run "$XCLOUD" policy check "$BATS_TEST_TMPDIR/nccl.yaml"
    [ "$status" -eq 0 ]
    [[ "$output" == *"nccl.yaml:4: NCCL_DEBGU: no NCCL from 2.8 to 2.30 knows it"* ]]
    [[ "$output" == *"nccl.yaml:8: NCCL_MNNVL_ENABLE: NCCL_CUMEM_ENABLE=0 takes away"* ]]
    [[ "$output" != *"no whole number"* ]]
    [[ "$output" == *"ok: 1 class"* ]]
}

@test "a wrong check, in checks: or resume:, is named as the policy names it, with the nearest" {
    run "$XCLOUD" policy check - <<<$'version: 1\nresume: { checks: cpu.cstat, after: 3 clean runs }'
    [ "$status" -eq 1 ]
    [[ "$output" == *"there is no check \"cpu.cstat\"; did you mean \"cpu.cstate\"?"* ]]
    run "$XCLOUD" policy check - <<<$'version: 1\ndefaults:\n  checks:\n    exec.disks: { path: /x, seconds: 5s }'
    [ "$status" -eq 1 ]
    [[ "$output" == 'standard input:4: exec.disks: seconds: "5s"; expected a number without a unit ('* ]]
    run "$XCLOUD" policy check - <<<$'version: 1\ndefaults:\n  checks:\n    exec.disks: { path: /x, onfail: drain }'
    [ "$status" -eq 1 ]
    [[ "$output" == 'standard input:4: exec.disks has no "onfail"; did you mean "on_fail"?'* ]]
}
