#!/bin/bash
# Does xcloud-exec bind a worker as the plan says, whatever the plan says? Workers are started the way
# torchrun does it, too: a Python launcher runs $PYTHON_EXEC -u SCRIPT with LOCAL_RANK set.
exe=${XCLOUD_EXEC:-$PWD/xcloud-exec}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset XCLOUD_PLAN LOCAL_RANK LOCAL_WORLD_SIZE SLURM_LOCALID PYTHON_EXEC \
    OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS
passed=0 failed=0

# is NAME EXPECTED ACTUAL; EXPECTED is a pattern
is() {
    # shellcheck disable=SC2053
    if [[ $3 == $2 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n  expected: %s\n  actual:   %s\n' "$1" "$2" "$3"
    fi
}
cpus='sed -n s/^Cpus_allowed_list:[[:space:]]*//p /proc/self/status'
memory='head -n 1 /proc/self/numa_maps'

allowed=$($cpus)
mapfile -t cpu < <(tr , '\n' <<<"$allowed" | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done)
if ((${#cpu[@]} < 2)); then
    echo "only one CPU may be used here: skipped"
    exit 77
fi
a=${cpu[0]} b=${cpu[1]}
plan="1;cpus=$a mems=0 mem=preferred WHO=first;cpus=$b mem=none WHO=second"
both=$(taskset -c "$a,$b" $cpus)

# ---- which share
is 'rank 0 gets share 0' "$a" "$(XCLOUD_PLAN=$plan LOCAL_RANK=0 "$exe" $cpus)"
is 'rank 1 gets share 1' "$b" "$(XCLOUD_PLAN=$plan LOCAL_RANK=1 "$exe" $cpus)"
is '--rank and --plan win' "$b" "$(XCLOUD_PLAN=1\;cpus=$a LOCAL_RANK=0 "$exe" --plan "$plan" --rank=1 -- $cpus)"
is 'LOCAL_RANK before Slurm' "$b" "$(XCLOUD_PLAN=$plan LOCAL_RANK=1 SLURM_LOCALID=0 "$exe" $cpus)"
is 'Open MPI' "$b" "$(XCLOUD_PLAN=$plan OMPI_COMM_WORLD_LOCAL_RANK=1 SLURM_LOCALID=0 "$exe" $cpus)"
is 'Intel MPI' "$b" "$(XCLOUD_PLAN=$plan MPI_LOCALRANKID=1 SLURM_LOCALID=0 "$exe" $cpus)"
is 'Slurm' "$b" "$(XCLOUD_PLAN=$plan SLURM_LOCALID=1 "$exe" $cpus)"
is 'one worker gets all shares' "$both" "$(XCLOUD_PLAN=$plan LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "$exe" $cpus)"
for rank in 0 1 2 3; do
    is "four workers, rank $rank" "${cpu[rank / 2]}" \
        "$(XCLOUD_PLAN=$plan LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 "$exe" $cpus)"
done
three="1;cpus=$a;cpus=$a;cpus=$b"
is 'two workers, three shares: the first gets two' "$a" \
    "$(XCLOUD_PLAN=$three LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 "$exe" $cpus)"
is 'two workers, three shares: the second gets one' "$b" \
    "$(XCLOUD_PLAN=$three LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "$exe" $cpus)"
is 'more workers than shares, their number unknown' '*not known*' \
    "$(XCLOUD_PLAN=$plan LOCAL_RANK=2 "$exe" true 2>&1)"

# ---- what a share sets
is 'variables' first "$(XCLOUD_PLAN=$plan LOCAL_RANK=0 "$exe" sh -c 'echo $WHO')"
is 'a default does not touch what the user set' user \
    "$(XCLOUD_PLAN="1;cpus=$a N?=12?96" N=user LOCAL_RANK=0 "$exe" sh -c 'echo $N')"
is "a default replaces the launcher's value" 12 \
    "$(XCLOUD_PLAN="1;cpus=$a N?=12?96" N=96 LOCAL_RANK=0 "$exe" sh -c 'echo $N')"
is 'a default is set when there is none' =x "$(XCLOUD_PLAN="1;cpus=$a N?==x?=y" LOCAL_RANK=0 "$exe" sh -c 'echo $N')"
is 'no variable that chooses what runs' none \
    "$(XCLOUD_PLAN="1;cpus=$a LD_PRELOADX=/x" LOCAL_RANK=0 "$exe" sh -c 'echo ${LD_PRELOADX:-none}')"
is 'the plan is used up' unset \
    "$(XCLOUD_PLAN=$plan LOCAL_RANK=0 "$exe" sh -c 'echo ${XCLOUD_PLAN:-unset}')"
if [[ -r /proc/self/numa_maps && -d /sys/devices/system/node/node0 ]]; then
    XCLOUD_PLAN=$plan LOCAL_RANK=0 "$exe" true 2>"$work/err"
    if grep -q 'memory policy' "$work/err"; then
        echo "no memory policy may be set here: $(cat "$work/err")"
    else
        is 'memory policy' '* prefer*:0 *' "$(XCLOUD_PLAN=$plan LOCAL_RANK=0 "$exe" $memory)"
        is 'memory none' '* default *' "$(XCLOUD_PLAN=$plan LOCAL_RANK=1 "$exe" $memory)"
        is 'memory bind' '* bind*:0 *' \
            "$(XCLOUD_PLAN="1;cpus=$a mems=0 mem=bind" LOCAL_RANK=0 "$exe" $memory)"
    fi
    is 'a node that is not there is said' '*memory policy*left as it is*' \
        "$(XCLOUD_PLAN="1;cpus=$a mems=999 mem=bind" LOCAL_RANK=0 "$exe" true 2>&1)"
fi
is '--verbose says what was done' "*rank 1: share 1, CPUs $b, memory none*" \
    "$(XCLOUD_PLAN=$plan LOCAL_RANK=1 "$exe" --verbose true 2>&1)"

# ---- never wider, never in the way
is 'never wider than it was' "$a" \
    "$(XCLOUD_PLAN="1;cpus=0-65535" LOCAL_RANK=0 taskset -c "$a" "$exe" $cpus)"
out=$(XCLOUD_PLAN="1;cpus=$b" LOCAL_RANK=0 taskset -c "$a" "$exe" $cpus 2>&1)
is 'no common CPU is said, and it runs' "*none of its CPUs $b*$a" "$out"
is 'no plan: it runs and says so' '*no plan*' "$(LOCAL_RANK=0 "$exe" true 2>&1)"
is 'no plan: the other workers are silent' '' "$(LOCAL_RANK=1 "$exe" true 2>&1)"
is 'no rank: it runs and says so' '*no local rank*ran' "$(XCLOUD_PLAN=$plan "$exe" echo ran 2>&1)"
LOCAL_RANK=1 "$exe" --strict true 2>"$work/err"
is 'strict refuses without a plan' '1 *no plan*' "$? $(cat "$work/err")"
XCLOUD_PLAN="1;cpus=$b" LOCAL_RANK=0 taskset -c "$a" "$exe" --strict true 2>/dev/null
is 'strict refuses when it cannot bind' 1 $?
long=$(printf '9%.0s' {1..9000})
for broken in '' 1 '1;' '1;;' '2;cpus=0' ';' "1;cpus=$a mem=everywhere" '1;cpus=' '1;cpus=-' '1;cpus=1-' \
    '1;cpus=0-1,' '1;cpus=3-1' '1;cpus=99999999999999999999' '1;cpus=65536' "1;cpus=$long" \
    "1;cpus=$a mems=1024" "1;cpus=$a mems=x" "1;cpus=$a =x" "1;cpus=$a A?=b" "1;cpus=$a 9=1" \
    "1;cpus=$a A" "1;cpus=$a mem=$long" "1;cpus=$a A=$long" 'mem=none' '1;mem=none' $'1;cpus=\xff\xfe' \
    '1;cpus=%n%s' "1;cpus=$a x"; do
    out=$(XCLOUD_PLAN=$broken LOCAL_RANK=0 "$exe" $cpus 2>&1)
    is "broken plan ${broken:0:40}: it runs, and says so" "xcloud-exec: *not bound*"$'\n'"$allowed" "$out"
    XCLOUD_PLAN=$broken LOCAL_RANK=0 "$exe" --strict true 2>/dev/null
    is "broken plan ${broken:0:40}: strict refuses" 1 $?
done
head -c 3000 /dev/urandom | tr -d '\0\n' >"$work/noise"
XCLOUD_PLAN="1;$(cat "$work/noise")" LOCAL_RANK=0 "$exe" true 2>/dev/null
is 'noise as a plan' 0 $?

# ---- becoming the program
is 'arguments pass through' '<a b><><-c>' "$("$exe" --rank 0 -- printf '<%s>' 'a b' '' -c 2>/dev/null)"
"$exe" --rank 0 sh -c 'exit 7' 2>/dev/null
is 'exit status' 7 $?
"$exe" /nonexistent/program 2>/dev/null
is 'not found' 127 $?
"$exe" xcloud-no-such-program 2>/dev/null
is 'not in PATH' 127 $?
touch "$work/plain"
"$exe" "$work/plain" 2>/dev/null
is 'not executable' 126 $?
"$exe" 2>/dev/null
is 'no program' 2 $?
"$exe" --rank x true 2>/dev/null
is 'a wrong rank' 2 $?
"$exe" --rnak 0 true 2>/dev/null
is 'a slip of the finger' 2 $?

# ---- as the launcher's interpreter
if command -v python3 >/dev/null; then
    python3 -m venv --without-pip "$work/venv" 2>/dev/null || ln -s "$(command -v python3)" "$work/python3"
    python=$work/venv/bin/python3
    [[ -x $python ]] || python=$work/python3
    cat >"$work/launch.py" <<'PYTHON'
import os, subprocess, sys
workers = []
for rank in range(2):
    env = dict(os.environ, LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    command = [os.environ.get("PYTHON_EXEC", sys.executable), "-u", *sys.argv[1:]]
    workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
for worker in workers:
    print(worker.communicate()[0], end="")
PYTHON
    cat >"$work/train.py" <<'PYTHON'
import multiprocessing, os, sys
def child(queue):
    queue.put(sorted(os.sched_getaffinity(0)))
if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=child, args=(queue,))
    process.start()
    inherited = queue.get() == sorted(os.sched_getaffinity(0))
    process.join()
    print(os.environ["LOCAL_RANK"], *sorted(os.sched_getaffinity(0)), sys.executable, sys.argv[1], inherited)
PYTHON
    expected="0 $a $python --lr=1 True"$'\n'"1 $b $python --lr=1 True"
    is 'torchrun: workers are bound and keep the virtual environment' "$expected" \
        "$(XCLOUD_PLAN=$plan PYTHON_EXEC=$exe "$python" "$work/launch.py" "$work/train.py" --lr=1 2>&1)"
    expected=${expected//$python/*python3}
    is 'a launcher called without a path' "$expected" \
        "$(XCLOUD_PLAN=$plan PYTHON_EXEC=$exe PATH=$(dirname "$python"):$PATH python3 "$work/launch.py" \
            "$work/train.py" --lr=1 2>&1)"
    is 'PYTHON_EXEC without a plan is harmless and silent' '0 *True'$'\n''1 *True' \
        "$(PYTHON_EXEC=$exe "$python" "$work/launch.py" "$work/train.py" --lr=1 2>&1)"
    cat >"$work/launch.sh" <<'SHELL'
LOCAL_RANK=1 "$PYTHON_EXEC" -u -c 'import os, sys; print(*sorted(os.sched_getaffinity(0)), sys.stdout.write_through)'
exit $?
SHELL
    is 'a launcher that is no Python: python3 of PATH' "$b True" \
        "$(XCLOUD_PLAN=$plan PYTHON_EXEC=$exe sh "$work/launch.sh" 2>&1)"
    mkdir "$work/bin" && ln -s "$exe" "$work/bin/python3"
    PATH=$work/bin LOCAL_RANK=0 "$BASH" -c '"$0" -u x; exit $?' "$exe" 2>"$work/err"
    is 'it never becomes itself' '127 *no*' "$? $(cat "$work/err")"
fi
echo "$passed passed, $failed failed"
((failed == 0))
