#!/usr/bin/env bats
# NCCL and topology files: what it says and does with each, and that `xcloud topo` said so before.

load common.bash

setup_file() {
    gpu_cluster_up
    export LIBRARY TOPO=$DIR/etc/topo.xml CASES=$DIR/home/cases
    LIBRARY=$(nccl_library)
    [ -n "$LIBRARY" ] || skip "no libnccl here"
    mkdir -m 755 "$CASES"
    topo_policy
    rm -f "$TOPO"
    xcloud topo generate --policy "$DIR/etc/policy.yaml" -o "$TOPO"
}
teardown_file() { gpu_cluster_down; }

topo_policy() { # FURTHER WORDS OF topo:
    bind_policy <<<"cpus: {housekeeping: none}
topo: {file: $TOPO${1:+, $1}}"
}

verify() { xcloud topo verify --policy "$DIR/etc/policy.yaml" "$@" 2>&1; }

@test "the file that xcloud makes is one that it takes" {
    run -0 xcloud topo lint --strict "$TOPO"
    run -0 verify "$TOPO"
    cat "$TOPO"
}

# NCCL is asked about each file that tests/topo has, on this machine: lint must have known which ones end
# every job and which do not.
@test "NCCL refuses what lint says that it refuses, and nothing else" {
    local here=$GPU_TESTS/../topo file wrong=0 refused=0 taken=0
    mkdir "$DIR/home/asked"
    for file in "$here"/bad/*.xml "$here"/good/*.xml; do echo "$file"; done |
        xargs -P 4 -I{} sh -c 'NCCL_TOPO_FILE={} NCCL_DEBUG=WARN timeout 60 python3 "$1" "$2" 1 \
            >"$3/$(basename {} .xml)" 2>&1; echo "exit $?" >>"$3/$(basename {} .xml)"' \
            sh "$GPU_TESTS/comm-init.py" "$LIBRARY" "$DIR/home/asked"
    for file in "$here"/bad/*.xml "$here"/good/*.xml; do
        name=$(basename "$file" .xml)
        said=$(xcloud topo lint "$file" 2>&1) || true
        asked=$DIR/home/asked/$name
        case $said in
        *"would refuse the file and end every job"*) want=refused ;;
        # on what else is there: the GPUs, the network, NCCL's release
        *"would end "* | *"would write past the end"* | *"would refuse more than"*) continue ;;
        *) want=taken ;;
        esac
        if grep -qx 'exit 0' "$asked"; then got=taken; else got=refused; fi
        eval "$got=\$(($got + 1))"
        [ "$got" = "$want" ] && continue
        wrong=$((wrong + 1))
        report oracle "$name: lint says $want, NCCL $got: $(grep -m1 WARN "$asked" | sed 's/.*NCCL WARN //')"
    done
    report oracle "$((refused + taken)) files asked of NCCL $(xcloud nccl --library "$LIBRARY" | sed -n 's/^library .*: //p' | head -n1): $refused refused, $taken taken; $wrong other than lint said."
    expect wrong "$wrong" 0
}

# One file each of what goes wrong at sites, made from this machine's own.
make_cases() {
    cp "$TOPO" "$CASES/generated.xml"
    head -c $(($(stat -c %s "$TOPO") * 2 / 3)) "$TOPO" >"$CASES/truncated.xml"
    { echo '<?xml version="1.0" encoding="UTF-8"?>'; cat "$TOPO"; } >"$CASES/xml-prolog.xml"
    sed 's/^  */\t/' "$TOPO" >"$CASES/indented-with-tabs.xml"
    sed 's/<system version="1">/<system version="2">/' "$TOPO" >"$CASES/version-2.xml"
    sed '0,/ numaid="[^"]*"/s///' "$TOPO" >"$CASES/no-numaid.xml"
    sed '0,/ class="[^"]*"/s///' "$TOPO" >"$CASES/gpu-without-class.xml"
    sed 's/ GT\/s PCIe/ GT\/s/g' "$TOPO" >"$CASES/speed-as-lspci-says-it.xml"
    sed '0,/busid="0000:00:/s//busid="0000:7f:/' "$TOPO" >"$CASES/stale-bus-id.xml"
    sed '0,/ numaid="[^"]*"/s// numaid="7"/' "$TOPO" >"$CASES/numa-node-that-is-not-there.xml"
    sed '0,/<cpu /s//<cpu affinity="00000001" /' "$TOPO" >"$CASES/affinity-of-one-cpu.xml"
    sed '0,/<cpu [^>]*>/s//<cpu numaid="0">/' "$CASES/stale-bus-id.xml" >"$CASES/stale-and-no-arch.xml"
    : >"$CASES/empty.xml"
}

# CASE [FILE]: what was predicted, what NCCL did, how fast, and which CPUs it found near the GPU
ask() {
    local name=$1 file=${2:-} predicted=- want=${want:-0} status said warn speed cpus
    if [ -n "$file" ]; then
        predicted=$(verify "$file" | sed -n 's/.*\(error\|warning\) \([A-Z][0-9]*\): .*/\1 \2/p' | sort -u | paste -sd,) || true
        ! { xcloud topo lint "$file" 2>&1 || true; } | grep -q 'end every job' || want=1
        [ -e "$file" ] || predicted="not there"
    fi
    said=$(as_user env ${file:+NCCL_TOPO_FILE="$file"} NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,NET \
        srun -Q -n"$gpus" -c$((CPUS / gpus)) --gres=gpu:"$gpus" --xcloud-bind=off python3 allreduce.py 2>&1) && status=0 || status=1
    echo "$said" >"$DIR/home/$name.log"
    warn=$(grep -m1 'NCCL WARN' <<<"$said" | sed 's/.*NCCL WARN //') || true
    speed=$(sed -n 's/^bus bandwidth //p' <<<"$said")
    cpus=$(grep -om1 'Affinity for GPU.*\|Setting affinity for GPU.*' <<<"$said") || true
    report cases "| $name | ${predicted:-nothing} | $([ $status = 0 ] && echo "runs, ${speed:-no bandwidth}" || echo "job ends") | ${warn:-nothing} | ${cpus:-nothing} |"
    expect "$name ends" "$status" "$want"
}

@test "without a file, with the right one, with a missing one: NCCL runs; only INFO tells them apart" {
    has_torch
    make_cases
    ask none
    ask generated "$CASES/generated.xml"
    contains "$(cat "$DIR/home/generated.log")" "NCCL_TOPO_FILE set by environment to $CASES/generated.xml"
    lacks "$(cat "$DIR/home/generated.log")" "Could not open XML topology file"
    ask missing "$CASES/missing.xml"
    contains "$(cat "$DIR/home/missing.log")" "Could not open XML topology file"
    lacks "$(cat "$DIR/home/missing.log")" "NCCL WARN"
}

@test "malformed files: what NCCL does is what lint said" {
    has_torch
    make_cases
    for name in truncated xml-prolog indented-with-tabs version-2 no-numaid gpu-without-class \
        speed-as-lspci-says-it empty; do
        [ "$name" = empty ] || run ! cmp -s "$CASES/$name.xml" "$TOPO"
        ask "$name" "$CASES/$name.xml"
    done
}

@test "files of another machine: NCCL takes them without a word, verify does not" {
    has_torch
    make_cases
    for name in stale-bus-id numa-node-that-is-not-there affinity-of-one-cpu; do
        run ! cmp -s "$CASES/$name.xml" "$TOPO"
        run ! verify --strict "$CASES/$name.xml"
        ask "$name" "$CASES/$name.xml"
    done
}

# NCCL puts an interface that is no PCI device (virtio) below the first <cpu>, and needs all of its attributes.
@test "a stale file without the CPU's kind ends jobs, where the network is no PCI device" {
    has_torch
    make_cases
    contains "$(xcloud topo lint "$CASES/stale-and-no-arch.xml" 2>&1 || true)" "warning D15"
    grep -q 'is not a PCI device' "$DIR/home/none.log" || skip "this machine's network is on PCI"
    want=1 ask stale-and-no-arch "$CASES/stale-and-no-arch.xml"
}

@test "a step is given the file; without it the step is refused before its program starts" {
    has_torch
    topo_policy "proof: refuse"
    run -0 as_user env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL srun -n1 -c"$CPUS" --gres=gpu:"$gpus" \
        python3 -m torch.distributed.run --nproc-per-node="$gpus" allreduce.py
    contains "$output" "NCCL_TOPO_FILE set by environment to $TOPO"
    lacks "$output" "Could not open XML topology file"
    contains "$output" "worker 0 sum"
    mv "$TOPO" "$TOPO.away"
    run -1 as_user srun -n1 --gres=gpu:"$gpus" echo ran
    mv "$TOPO.away" "$TOPO"
    contains "$output" "the NCCL topology file $TOPO cannot be used"
    lacks "$output" "ran
"
    nodes_idle
}

@test "xcloud nccl finds the library that PyTorch loads" {
    has_torch
    release=$(python3 -c 'import torch; print(".".join(map(str, torch.cuda.nccl.version())))')
    run -0 xcloud nccl --library "$LIBRARY"
    contains "$output" "library $LIBRARY: $release"
    run -0 xcloud nccl
    contains "$output" ": $release"
}
