#!/bin/bash
# Whatever lies in place of the files that xcloud-prolog, -epilog and -health keep, none of them hangs,
# crashes, fails a fit node or writes where a link leads.
#
#   tests/unit/test-state.sh     in the build directory
set -u
[[ $EUID == 0 ]] || { echo "only root keeps state"; exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
failed=0 runs=0
node=$work/node

run() { # PROGRAM [OPTIONS]: its output in $output
    local program=$1 began=$EPOCHREALTIME
    shift
    output=$(env -i SLURMD_NODENAME=n1 SLURM_JOB_ID=1 timeout 20 "./xcloud-$program" --prefix "$node" "$@" 2>&1)
    status=$?
    took=$(((${EPOCHREALTIME/./} - ${began/./}) / 1000))
    runs=$((runs + 1))
}
bad() {
    failed=$((failed + 1))
    printf 'FAILED %s: status %s, %s ms\n%s\n' "$1" "$status" "$took" "${output:0:500}"
}

mkdir -p "$node/etc/xcloud" "$node/run/xcloud" "$node/var/lib/xcloud"
printf 'version: 1\nmode: enforce\ndefaults:\n  checks: { cpu.count: drain }\n' >"$node/etc/xcloud/policy.yaml"
./xcloud policy arm --prefix "$node" >/dev/null || exit 99
for program in prolog health epilog; do
    run $program
    [[ $status == 0 && -z $output ]] || bad "$program on a fit node"
done
files=$(cd "$node" && find etc run var -type f | sort)
[[ $(wc -l <<<"$files") -ge 15 ]] || bad "too few files: $files"
cp -a "$node" "$work/good"

put() { # KIND PATH OF-THE-GOOD-NODE
    rm -rf "$2"
    case $1 in
    fifo) mkfifo "$2" ;;
    directory) mkdir -p "$2/below" ;;
    link) ln -s /etc/shadow "$2" ;;
    dangling) ln -s "$work/made" "$2" ;;
    huge) truncate -s 3G "$2" ;;
    another\'s) cp -a "$3" "$2" 2>/dev/null || echo x >"$2"; chown 1000 "$2" ;;
    anybody\'s) cp -a "$3" "$2" 2>/dev/null || echo x >"$2"; chmod 666 "$2" ;;
    garbage) head -c 3000 /dev/urandom >"$2" ;;
    empty) : >"$2" ;;
    esac
}
for file in $files run/xcloud/{stuck,refused,act.lock,drained,no-policy} var/lib/xcloud/drained; do
    for kind in fifo directory link dangling huge another\'s anybody\'s garbage empty; do
        rm -rf "$node" && cp -a "$work/good" "$node"
        put $kind "$node/$file" "$work/good/$file"
        for program in prolog health; do
            run $program
            [[ $status == 0 && $took -lt 5000 && $output != *crashed* && $output != *"no answer"* ]] ||
                bad "$program, $file: $kind"
        done
        [[ ! -e $work/made ]] || { rm -rf "$work/made" && bad "something was written through the link $file"; }
    done
done

# the directories: nobody's word is taken from where others write, and that is said
for directory in run/xcloud var/lib/xcloud; do
    for mode in 'chown 1000' 'chmod 777'; do
        rm -rf "$node" && cp -a "$work/good" "$node"
        $mode "$node/$directory"
        run prolog
        [[ $status == 0 && $output == *"$node/$directory belongs to uid "*"what is kept there is not believed"* ]] ||
            bad "$directory, $mode"
    done
    for kind in fifo link dangling empty; do
        rm -rf "$node" && cp -a "$work/good" "$node"
        put $kind "$node/$directory" ''
        run prolog
        [[ $status == 0 && $took -lt 5000 && $output != *crashed* ]] || bad "$directory: $kind"
        [[ ! -e $work/made ]] || { rm -rf "$work/made" && bad "something was made through the link $directory"; }
    done
done

# a full disk and one that is read-only, where this may mount in a namespace of its own
full() { # DIRECTORY HOW
    rm -rf "$node" && cp -a "$work/good" "$node"
    # shellcheck disable=SC2016 # for the inner one
    output=$(timeout 20 unshare -m bash -c '
        cp -a "$0/$1" "$3" && mount -t tmpfs -o size=64k none "$0/$1" && cp -a "$3/." "$0/$1" && chmod 755 "$0/$1" || exit 99
        [ "$2" = full ] && head -c 1000000 /dev/zero >"$0/$1/fill"
        [ "$2" = full ] || mount -o remount,ro "$0/$1" || exit 99
        exec env -i SLURMD_NODENAME=n1 SLURM_JOB_ID=1 ./xcloud-prolog --prefix "$0"' "$node" "$1" "$2" "$work/kept" 2>&1)
    status=$? took=0
    rm -rf "$work/kept"
}
if unshare -m true 2>/dev/null; then
    for how in full read-only; do
        full run/xcloud $how
        [[ $status == 0 && $output == *"counters of this run are lost"* ]] || bad "run/xcloud is $how"
        full var/lib/xcloud $how
        [[ $status == 0 ]] || bad "var/lib/xcloud is $how"
    done
fi

# runs that are killed while they drain leave nothing that grows
rm -rf "$node" && cp -a "$work/good" "$node"
printf '#!/bin/sh\nexec sleep 5\n' >"$work/scontrol" && cp "$work/scontrol" "$work/sinfo" && chmod 755 "$work"/s*
printf 'version: 1\nmode: enforce\ndefaults:\n  checks: { cpu.count: { count: 9999, on_fail: drain }, self.scontrol: { path: %s } }\n' \
    "$work/scontrol" >"$node/etc/xcloud/policy.yaml"
./xcloud policy arm --prefix "$node" >/dev/null || exit 99
pending() { find "$node/run/xcloud" -name 'counters.prolog.[0-9]*' | wc -l; }
for _ in 1 2 3; do
    env -i SLURMD_NODENAME=n1 SLURM_JOB_ID=1 ./xcloud-prolog --prefix "$node" >/dev/null 2>&1 &
    for _ in {1..100}; do [[ ! -e $node/run/xcloud/counters.prolog.$! ]] || break; sleep 0.05; done
    kill -KILL $! && wait $! 2>/dev/null
done
[[ $(pending) == 1 ]] || { failed=$((failed + 1)); echo "FAILED: $(pending) files of killed runs are left"; }

# a policy that is written while a run has read the one before: what is kept as good has been loaded
rm -rf "$node" && cp -a "$work/good" "$node"
policy=$node/etc/xcloud/policy.yaml
for ((i = 0; i < 150; i++)); do
    printf 'version: 1\nmode: enforce\n# %d\n' "$i" >"$policy.new" && mv "$policy.new" "$policy"
    sleep 0.003
    echo "mode: [ # $i" >"$policy.new" && mv "$policy.new" "$policy"
done &
writer=$!
while kill -0 $writer 2>/dev/null; do
    env -i SLURMD_NODENAME=n1 ./xcloud-prolog --prefix "$node" >/dev/null 2>&1
    if grep -qs '\[' "$node/run/xcloud/policy.good" "$node/var/lib/xcloud/policy.good"; then
        failed=$((failed + 1))
        echo "FAILED: a policy that does not load is kept as good"
        break
    fi
done
wait $writer

printf '%d runs, %d failed\n' "$runs" "$failed"
[[ $failed == 0 ]]
