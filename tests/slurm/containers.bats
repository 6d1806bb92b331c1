#!/usr/bin/env bats
# The NCCL topology file and xcloud-exec inside containers: there, the node's own bytes, or said.
#
# XCLOUD_TEST_PYXIS=DIR runs the file with a real pyxis and enroot: DIR/lib/slurm/spank_pyxis.so,
# DIR/etc/enroot/hooks.d and an enroot in DIR/wrap that keeps the nodes of one host apart. Without it a
# stand-in for both (standin-pyxis.c) enters a root file system in namespaces of its own and runs the
# hook with enroot's variables.

load common.bash

export NODE=${NODE:-n}
TOPO=/opt/xcloud-test.$BATS_ROOT_PID/topo.xml # under nothing that a container shares with its host
HOOK=$STAGE/etc/enroot/hooks.d/50-xcloud.sh

setup_file() {
    command -v busybox musl-gcc >/dev/null || skip "busybox and musl-gcc are not installed"
    local pyxis
    if [ -n "${XCLOUD_TEST_PYXIS:-}" ]; then
        export HOOKS=$XCLOUD_TEST_PYXIS/etc/enroot/hooks.d PATH=$XCLOUD_TEST_PYXIS/wrap:$PATH
        mkdir -p "$BATS_FILE_TMPDIR/runtime"
        pyxis="required $XCLOUD_TEST_PYXIS/lib/slurm/spank_pyxis.so runtime_path=$BATS_FILE_TMPDIR/runtime"
    else
        export HOOKS=$BATS_FILE_TMPDIR/hooks.d
        mkdir -p "$HOOKS"
        mkdir -m 1777 "$BATS_FILE_TMPDIR"/{names,plain.copies,own.copies,nccl.copies}
        cc -shared -fPIC -Wall -Wextra -D_GNU_SOURCE -o "$BATS_FILE_TMPDIR/standin.so" "$HERE/standin-pyxis.c"
        pyxis="required $BATS_FILE_TMPDIR/standin.so $HOOKS"
    fi
    chmod 755 "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR"
    make_images
    NODES=2 PLUGSTACK="$pyxis
optional $PLUGIN policy=%D/etc/policy.yaml machine=%D/nodes/%n" cluster_up
}

teardown_file() {
    cluster_down
    rm -rf "$HOOKS/50-xcloud.sh" "${TOPO%/*}"
}

setup() {
    mkdir -p "${TOPO%/*}"
    rm -f "$TOPO"
    echo "<system version=\"1\"><!-- $BATS_TEST_NUMBER $RANDOM --></system>" >"$TOPO"
    install -m 755 "$HOOK" "$HOOKS/50-xcloud.sh"
    topo_policy
}

# Busybox and one program that is linked with another C library than the host's.
make_images() {
    local root=$BATS_FILE_TMPDIR/root word
    mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,usr/bin,run,var,root,lib,opt}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for word in sh cat echo true grep cut mkdir sleep ls rm cmp id env stat; do ln -s busybox "$root/bin/$word"; done
    echo root:x:0:0::/root:/bin/sh >"$root/etc/passwd"
    echo root:x:0: >"$root/etc/group"
    touch "$root/etc/environment" "$root/etc/fstab"
    musl-gcc -o "$root/bin/python3" "$HERE/worker.c" # what xcloud-exec starts in python's place
    cp -L /lib/ld-musl-*.so.1 "$root/lib/"
    save_image plain
    echo NCCL_TOPO_FILE=/opt/image.xml >"$root/etc/environment"
    echo '<system version="1"></system>' >"$root/opt/image.xml"
    save_image own
    : >"$root/etc/environment"
    mkdir -p "$root/usr/lib/x86_64-linux-gnu"
    printf 'ELF, NCCL version 2.26.2+cuda12.4' >"$root/usr/lib/x86_64-linux-gnu/libnccl.so.2.26.2"
    ln -s libnccl.so.2.26.2 "$root/usr/lib/x86_64-linux-gnu/libnccl.so.2"
    save_image nccl
    export PLAIN=$BATS_FILE_TMPDIR/plain OWN=$BATS_FILE_TMPDIR/own NCCL=$BATS_FILE_TMPDIR/nccl
    [ -z "${XCLOUD_TEST_PYXIS:-}" ] || export PLAIN=$PLAIN.sqsh OWN=$OWN.sqsh NCCL=$NCCL.sqsh
}

save_image() { # NAME
    if [ -n "${XCLOUD_TEST_PYXIS:-}" ]; then
        mksquashfs "$BATS_FILE_TMPDIR/root" "$BATS_FILE_TMPDIR/$1.sqsh" -quiet -noappend >/dev/null
    else
        cp -a "$BATS_FILE_TMPDIR/root" "$BATS_FILE_TMPDIR/$1"
        chmod -R a+rwX "$BATS_FILE_TMPDIR/$1" # a rootfs is its user's
    fi
}

topo_policy() { # FURTHER WORDS OF topo:
    bind_policy <<<"cpus: {housekeeping: none}
topo: {file: $TOPO, proof: refuse${1:+, $1}}"
}
remove_hook() { rm -f "$HOOKS/50-xcloud.sh"; }

show='echo "$NCCL_TOPO_FILE"; cat "$NCCL_TOPO_FILE"'
node_file() { printf '%s\n%s' "$TOPO" "$(cat "$TOPO")"; }

@test "cloudai 331, cloudai 337: an image without the file: the node's bytes at the node's path" {
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$PLAIN" sh -c "$show"
    expect inside "$output" "$(node_file)"
}

@test "verbose says that it opens inside the container" {
    run -0 as_user srun -N1 -c"$CPUS" --xcloud-bind=verbose --container-image="$PLAIN" true
    contains "$output" "NCCL's topology file opens inside the container"
    local record
    record=$(xcloud job --machine "$DIR/nodes/${NODE}1" "$(xcloud job --machine "$DIR/nodes/${NODE}1" | awk 'END { print $1 }')")
    contains "$record" "--xcloud-bind=verbose: bound"
    contains "$record" "; NCCL's topology file opens"
    run -0 as_user srun -N1 -c"$CPUS" --xcloud-bind=verbose true
    contains "$output" "NCCL's topology file opens"
    lacks "$output" "inside the container"
}

@test "an image with a file of its own: replaced, or kept where the policy says so" {
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$OWN" sh -c "$show"
    expect replaced "$output" "$(node_file)"
    topo_policy "over_image: keep"
    run -0 as_user srun -N1 -c"$CPUS" --xcloud-bind=explain --container-image="$OWN" sh -c "$show"
    contains "$output" "/opt/image.xml"
    contains "$output" '<system version="1"></system>'
    contains "$output" "the image's own, which the policy keeps"
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$PLAIN" sh -c "$show"
    expect "none to keep" "$output" "$(node_file)"
}

@test "read-only and writable roots, remapped root, a mount of the user's" {
    local options
    for options in --container-readonly --container-writable --container-remap-root \
        --no-container-mount-home --container-mounts=/etc/hosts:/etc/xcloud-hosts; do
        run -0 as_user srun -N1 -c"$CPUS" $options --container-image="$PLAIN" sh -c "$show"
        expect "$options" "$output" "$(node_file)"
    done
}

@test "two nodes, four tasks each: every one of them reads it" {
    run -0 as_user srun -N2 -n8 --overcommit --container-image="$PLAIN" sh -c 'cat "$NCCL_TOPO_FILE"'
    expect tasks "$(grep -cxF "$(cat "$TOPO")" <<<"$output")" 8
}

@test "a batch script in a container" {
    run -0 as_user sbatch -W -Q -N1 -o "$DIR/home/batch.out" --container-image="$PLAIN" --wrap "$show"
    expect inside "$(cat "$DIR/home/batch.out")" "$(node_file)"
}

@test "without the hook the task places the file itself" {
    remove_hook
    run -0 as_user srun -N1 -c"$CPUS" --container-writable --container-image="$PLAIN" sh -c "$show"
    expect inside "$output" "$(node_file)"
    run -0 as_user srun -N1 -n4 --overcommit --container-image="$OWN" sh -c 'cat "$NCCL_TOPO_FILE"'
    expect tasks "$(grep -cxF "$(cat "$TOPO")" <<<"$output")" 4
    run -0 as_user srun -N1 -c"$CPUS" --container-writable --container-remap-root --container-image="$PLAIN" sh -c "$show"
    expect remapped "$output" "$(node_file)"
}

@test "without the hook and with a read-only root: at another place, the same bytes" {
    remove_hook
    run -0 as_user srun -N1 -c"$CPUS" --container-readonly --container-image="$PLAIN" sh -c "$show"
    contains "$output" "$(cat "$TOPO")"
    contains "$output" "/xcloud/topo.xml"
    expect lines "$(wc -l <<<"$output")" 2
}

# Where a directory is shared, another user can be there first, and what he owns he can exchange later.
@test "another user's directory is no place for xcloud-exec or the file" {
    remove_hook
    local shared=$DIR/home/shared
    mkdir -m 1777 "$shared"
    setpriv --reuid daemon --regid daemon --clear-groups sh -c "mkdir $shared/xcloud && cd $shared/xcloud &&
        printf '#!/bin/sh\necho stolen\n' >xcloud-exec && chmod 755 xcloud-exec && cp $TOPO topo.xml"
    run -0 as_user srun -N1 -n1 -c"$CPUS" --gres=gpu:2 --container-readonly --container-mounts="$shared:/var/run" \
        --container-image="$PLAIN" sh -c 'echo "$NCCL_TOPO_FILE $PYTHON_EXEC"'
    expect places "$output" "/tmp/.xcloud-$(id -u nobody)/topo.xml /tmp/.xcloud-$(id -u nobody)/xcloud-exec"
    expect "left alone" "$(ls "$shared/xcloud")" $'topo.xml\nxcloud-exec'
    rm -r "$shared"
}

@test "entering a container that was started without us" {
    as_user salloc -Q -N1 -n2 --overcommit bash -c "
        srun --overlap -n1 --xcloud-bind=off --container-image=$PLAIN --container-name=mine \
            sh -c 'ls $TOPO; touch /tmp/up; sleep 20' >$DIR/home/first.out 2>&1 &
        for _ in \$(seq 100); do
            srun --overlap -n1 --xcloud-bind=off --container-name=mine sh -c 'ls /tmp/up' >/dev/null 2>&1 && break
            sleep 0.2
        done
        srun --overlap -n1 --container-name=mine sh -c '$show' >$DIR/home/second.out 2>&1
        scancel \$SLURM_JOB_ID.0" >"$DIR/home/salloc.out" 2>&1 || true
    contains "$(cat "$DIR/home/first.out")" "No such file"
    expect inside "$(grep -v ' cores: ' "$DIR/home/second.out")" "$(node_file)"
}

@test "a named container, made with us and started again: the file is there each time" {
    local hook
    for hook in yes no; do
        [ $hook = yes ] || remove_hook
        as_user salloc -Q -N1 -n1 bash -c "
            for i in 1 2; do srun --container-image=$PLAIN --container-name=kept$hook sh -c 'cat \$NCCL_TOPO_FILE'; done" >"$DIR/home/kept.out" 2>&1
        expect "hook: $hook" "$(grep -v ' cores: ' "$DIR/home/kept.out")" "$(cat "$TOPO" "$TOPO")"
    done
}

@test "an image that is mounted, not unpacked (squashfuse)" {
    [ -n "${XCLOUD_TEST_PYXIS:-}" ] || skip "the stand-in knows directories alone"
    local hook option
    sed -i 's/runtime_path=/use_squashfuse=1 &/' "$DIR/etc/plugstack.conf"
    for hook in yes no; do
        [ $hook = yes ] || remove_hook
        for option in --container-writable --container-readonly; do
            run -0 as_user srun -N1 -c"$CPUS" $option --container-image="$OWN" sh -c 'grep " / " /proc/self/mounts; cat "$NCCL_TOPO_FILE"'
            contains "$output" "$(cat "$TOPO")"
            contains "$output" overlay
        done
    done
    sed -i 's/use_squashfuse=1 //' "$DIR/etc/plugstack.conf"
}

@test "a node that lacks the file: refused with a line that says why, and the node stays" {
    rm "$TOPO"
    run -1 as_user srun -N1 -n2 --overcommit --container-image="$PLAIN" echo ran
    lacks "$output" $'\nran'
    expect lines "$(grep -c "$TOPO cannot be used" <<<"$output")" 1
    contains "$output" "refused: the program would not find the NCCL topology file"
    run -1 as_user srun -N1 -c"$CPUS" echo ran
    contains "$output" "$TOPO cannot be used: "
    nodes_idle
    bind_policy <<<"topo: {file: $TOPO, proof: warn}"
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$PLAIN" sh -c 'echo "ran ${NCCL_TOPO_FILE-unset}"'
    contains "$output" "NCCL runs without it"
    contains "$output" "ran unset"
    bind_policy <<<"topo: {file: $TOPO, proof: ignore}"
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$PLAIN" echo ran
    expect silent "$output" ran
}

@test "a file that others can write is not used" {
    chmod 666 "$TOPO"
    run -1 as_user srun -N1 -c"$CPUS" echo ran
    contains "$output" "$TOPO cannot be used"
}

@test "the job's own file is kept, and proven as its user" {
    echo '<system version="1"><!-- mine --></system>' >"$DIR/home/mine.xml"
    run -0 as_user env NCCL_TOPO_FILE="$DIR/home/mine.xml" srun -N1 -c"$CPUS" sh -c "$show"
    contains "$output" "<!-- mine -->"
    run -1 as_user env NCCL_TOPO_FILE="$DIR/home/mine.xml" srun -N1 -c"$CPUS" --container-image="$PLAIN" echo ran
    contains "$output" "$DIR/home/mine.xml (the job's own) cannot be used inside the container: it is not there"
    run -0 as_user env NCCL_TOPO_FILE="$DIR/home/mine.xml" srun -N1 -c"$CPUS" --container-image="$OWN" \
        --container-mounts="$DIR/home/mine.xml:$DIR/home/mine.xml" sh -c "$show"
    contains "$output" "<!-- mine -->"
    run -1 as_user env NCCL_TOPO_FILE="$DIR/etc/munge.key" srun -N1 -c"$CPUS" echo ran
    contains "$output" "Permission denied"
}

@test "a job's own file may be anything, and holds nobody up" {
    mkfifo "$DIR/home/fifo"
    run -1 as_user env NCCL_TOPO_FILE="$DIR/home/fifo" timeout 20 srun -N1 -c"$CPUS" echo ran
    contains "$output" "it is not a file"
    run -1 as_user env NCCL_TOPO_FILE=/proc/self/mem timeout 20 srun -N1 -c"$CPUS" echo ran
    contains "$output" "cannot be used"
    run -1 as_user env NCCL_TOPO_FILE="$(printf '/a b\n%%s%%n\033[2J')" timeout 20 srun -N1 -c"$CPUS" --xcloud-bind=explain echo ran
    lacks "$output" $'\033'
    lacks "$output" $'\n%s'
}

@test "the hook does nothing for containers that are none of ours, and never stops one" {
    run -0 as_user srun -N1 -c"$CPUS" --xcloud-bind=off --container-image="$OWN" sh -c 'echo "$NCCL_TOPO_FILE"'
    expect off "$output" /opt/image.xml
    local value
    for value in "/etc/ho sts" "relative" "/etc" "$(printf '/etc/hosts\n/etc /etc none bind')"; do
        : >"$BATS_TEST_TMPDIR/mounts"
        run -0 env XCLOUD_TOPO_FILE="$value" ENROOT_MOUNTS="$BATS_TEST_TMPDIR/mounts" \
            ENROOT_ENVIRON="$BATS_TEST_TMPDIR/environ" "$HOOK"
        expect "$value" "$output$(cat "$BATS_TEST_TMPDIR/mounts")" ""
    done
}

@test "torchrun's workers in an image with another C library are bound through xcloud-exec" {
    bind_policy <<<"cpus: {housekeeping: none}"
    for hook in yes no; do
        [ $hook = yes ] || remove_hook
        run -0 as_user srun -N1 -n1 -c"$CPUS" --gres=gpu:2 --container-image="$PLAIN" sh -c '
            for r in 0 1; do LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x "$PYTHON_EXEC" -u train.py; done'
        expect "hook: $hook" "$output" "worker $UPPER
worker $LOWER"
    done
}

@test "xcloud-inside says in any image what the job sees there" {
    [ -x "$STAGE/bin/xcloud-inside" ] || skip "no static libraries here: it was not built"
    run as_user env NCCL_DEBGU=WARN srun -N1 -c"$CPUS" --container-image="$PLAIN" "$STAGE/bin/xcloud-inside"
    contains "$output" "PASS    inside.topo"
    contains "$output" "inside.affinity cpu$(list 0 "$LAST"): $CPUS CPUs"
    contains "$output" "WARN    inside.env NCCL_DEBGU: no NCCL from 2.8 to 2.30 knows it"
}

@test "the image's NCCL against the policy's nccl.version: the step names it once, and xcloud-inside" {
    local library=/usr/lib/x86_64-linux-gnu/libnccl.so.2 inside
    bind_policy <<<'nccl: { version: ">= 2.27" }'
    run -0 as_user srun -N2 -n4 --overcommit --container-image="$NCCL" true
    contains "$output" "NCCL is 2.26.2 in the container ($library); the policy wants >= 2.27"
    expect lines "$(grep -c 'NCCL is' <<<"$output")" 1
    run -0 as_user srun -N1 -c"$CPUS" --xcloud-bind=explain --container-image="$NCCL" true
    contains "$output" "NCCL's library: $library (2.26.2)"
    contains "$output" "WRONG NCCL: the library is 2.26.2; the policy wants >= 2.27"
    if [ -x "$STAGE/bin/xcloud-inside" ]; then
        run -1 as_user srun -N1 -c"$CPUS" --container-image="$NCCL" "$STAGE/bin/xcloud-inside"
        contains "$output" "FAIL    inside.nccl $library: NCCL 2.26.2; want >= 2.27"
        run as_user srun -N1 -c"$CPUS" --container-image="$PLAIN" "$STAGE/bin/xcloud-inside"
        contains "$output" "N/A     inside.nccl: there is no libnccl.so.2"
    fi
    bind_policy <<<'nccl: { version: "2.26" }'
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$NCCL" true
    lacks "$output" "NCCL is"
}

@test "a node's NCCL, as the job would load it, is named by each node; what is no file holds nobody up" {
    local home=$DIR/home
    mkdir -p "$home"/{wheel/lib/python3.12/site-packages/nvidia{/nccl/lib,_nccl_cu12-2.28.3.dist-info},fifos}
    echo ELF >"$home/wheel/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
    mkfifo "$home/fifos/libnccl.so.2"
    bind_policy <<<'nccl: { version: "!= 2.28.3" }'
    run -0 as_user env VIRTUAL_ENV="$home/wheel" LD_LIBRARY_PATH="$home/fifos" srun -N2 -n4 --overcommit true
    contains "$output" "${NODE}1: NCCL is 2.28.3 here ($home/wheel/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2); the policy wants != 2.28.3"
    expect lines "$(grep -c 'NCCL is' <<<"$output")" 2
    run -0 as_user env VIRTUAL_ENV="$home/wheel" srun -N1 -c"$CPUS" sh -c 'echo "$XCLOUD_NCCL_VERSION"'
    contains "$output" "!= 2.28.3"
    rm -r "$home/wheel" "$home/fifos"
}

@test "topo.file: none leaves everything alone" {
    bind_policy <<<"topo: {file: none}"
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$OWN" sh -c 'echo "$NCCL_TOPO_FILE"; ls /opt'
    expect own "$output" "/opt/image.xml
image.xml"
    run -0 as_user srun -N1 -c"$CPUS" sh -c 'echo "${NCCL_TOPO_FILE-unset}"'
    expect unset "$output" unset
}

@test "mode observe sets nothing" {
    { printf 'version: 1\nmode: observe\ndefaults:\n  topo: {file: %s, proof: refuse}\n' "$TOPO"; } | policy
    run -0 as_user srun -N1 -c"$CPUS" --container-image="$OWN" sh -c 'echo "$NCCL_TOPO_FILE"'
    expect own "$output" /opt/image.xml
}

@test "apptainer gets both files through its environment; what the user binds stays" {
    run -0 as_user srun -N1 -c"$CPUS" sh -c 'echo "$APPTAINER_BIND $SINGULARITY_BIND $APPTAINERENV_NCCL_TOPO_FILE"'
    local exec=$STAGE/bin/xcloud-exec # bound too where the task has several GPUs
    expect new "${output//,$exec:$exec:ro/}" "$TOPO:$TOPO:ro $TOPO:$TOPO:ro $TOPO"
    run -0 as_user env APPTAINER_BIND=/data,/scratch:/s srun -N1 -c"$CPUS" sh -c 'echo "$APPTAINER_BIND"'
    expect appended "${output//,$exec:$exec:ro/}" "/data,/scratch:/s,$TOPO:$TOPO:ro"
    run -0 as_user env SINGULARITY_BIND=/data srun -N1 -c"$CPUS" sh -c 'echo "$APPTAINER_BIND $SINGULARITY_BIND"'
    expect "taken over" "${output//,$exec:$exec:ro/}" "/data,$TOPO:$TOPO:ro /data,$TOPO:$TOPO:ro"
    run -0 as_user env APPTAINER_BIND=/data salloc -Q -N1 srun sh -c 'srun --overlap sh -c "echo \$APPTAINER_BIND"'
    expect "a step in a step" "$(grep ^/data <<<"${output//,$exec:$exec:ro/}")" "/data,$TOPO:$TOPO:ro"
}

@test "a bundle cannot be looked into: refused with what to write, or said" {
    run -1 as_user env SLURM_CONTAINER=/bundle srun -N1 -c"$CPUS" --export=ALL echo ran
    contains "$output" "its config.json must mount $TOPO"
    bind_policy <<<"topo: {file: $TOPO, proof: warn}"
    run -0 as_user env SLURM_CONTAINER=/bundle srun -N1 -c"$CPUS" --export=ALL echo ran
    contains "$output" "its config.json must mount $TOPO"
    contains "$output" ran
}

@test "explain names each of NCCL's variables with its origin, and what is wrong with them" {
    bind_policy <<<"cpus: {housekeeping: none}
topo: {file: $TOPO}
env: { NCCL_IB_QPS_PER_CONNECTION: { value: 4, set: default } }"
    echo "NCCL_SOCKET_IFNAME==eth0" >"$DIR/home/.nccl.conf"
    run -0 as_user env HOME="$DIR/home" NCCL_DEBGU=INFO NCCL_ALGO=Ring srun -N1 -c"$CPUS" --xcloud-bind=explain true
    contains "$output" "NCCL_ALGO=Ring  (the job)"
    contains "$output" "NCCL_IB_QPS_PER_CONNECTION=4  (policy line 6, without evidence)"
    contains "$output" "NCCL_TOPO_FILE=$TOPO  (policy line 5)"
    contains "$output" "NCCL_SOCKET_IFNAME==eth0  ($DIR/home/.nccl.conf line 1)"
    contains "$output" "WRONG NCCL_DEBGU: no NCCL from 2.8 to 2.30 knows it"
    contains "$output" "CHECK NCCL_ALGO"
    run -0 as_user srun -N1 -c"$CPUS" --xcloud-bind=explain --container-image="$OWN" true
    contains "$output" "NCCL_TOPO_FILE=$TOPO  (policy line 5)"
}

@test "aicr 2169: what an image says instead of the job is named" {
    bind_policy <<<"cpus: {housekeeping: none}"
    run -0 as_user env NCCL_TOPO_FILE=/mine srun -N1 -c"$CPUS" --xcloud-bind=explain --container-image="$OWN" true
    contains "$output" "NCCL_TOPO_FILE=/opt/image.xml  (the image, or a hook"
    contains "$output" "the job said /mine"
    mkdir -p "$DIR/nodes/${NODE}1/etc/enroot/environ.d"
    echo NCCL_TOPO_FILE=/opt/image.xml >"$DIR/nodes/${NODE}1/etc/enroot/environ.d/10-site.env"
    run -0 as_user srun -w "${NODE}1" -c"$CPUS" --xcloud-bind=explain --container-image="$OWN" true
    contains "$output" "NCCL_TOPO_FILE=/opt/image.xml  ($DIR/nodes/${NODE}1/etc/enroot/environ.d/10-site.env line 1)"
    rm -r "$DIR/nodes/${NODE}1/etc/enroot"
}

@test "aicr 422: a value that the site's provider has set is never overwritten by a default" {
    bind_policy <<<"cpus: {housekeeping: none}
env: { NCCL_MIN_NCHANNELS: { value: 4, set: default } }"
    run -0 as_user env NCCL_MIN_NCHANNELS=8 srun -N1 -c"$CPUS" sh -c 'echo "$NCCL_MIN_NCHANNELS"'
    expect kept "$output" 8
}

@test "nothing of it stays on the host" {
    lacks "$(cat /proc/self/mounts)" "${TOPO%/*}"
    expect "one file" "$(ls "${TOPO%/*}")" topo.xml
}
