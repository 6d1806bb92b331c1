#!/bin/sh
# enroot hook of xcloud-bind: the NCCL topology file, xcloud-exec and xcloud-inside, into the container at
# their own paths. See xcloud-containers(7).
#
# It runs for every container that starts on the node, as its user, with what the step's environment
# says; the plugin says it before the container starts, so without the plugin nothing happens. It never
# fails: a container that lacks the file is told of, or refused, by the plugin inside.
set -u
topo=${XCLOUD_TOPO_FILE-} exec=${XCLOUD_EXEC-} inside=${XCLOUD_INSIDE-}
[ -n "$topo$exec$inside" ] && [ -n "${ENROOT_MOUNTS-}" ] || exit 0

mount_file() { # PATH OPTIONS: a line of enroot's fstab, whose fields blanks end and backslashes escape
    case $1 in
    *[[:space:]\\]* | [!/]* | */../*) return ;;
    esac
    [ -f "$1" ] && [ -r "$1" ] || return
    printf '%s %s none x-create=file,bind,ro,nosuid,nodev,%sprivate,nofail,silent\n' "$1" "$1" "$2" \
        >>"$ENROOT_MOUNTS"
}

[ -z "$exec" ] || mount_file "$exec" ""
[ -z "$inside" ] || mount_file "$inside" ""
[ -n "$topo" ] || exit 0
mount_file "$topo" noexec,
if [ -n "${XCLOUD_TOPO_KEEP-}" ] && grep -q '^NCCL_TOPO_FILE=' "${ENROOT_ENVIRON:-/dev/null}"; then
    exit 0 # the image's own stays
fi
case $topo in
*[[:cntrl:]]*) ;;
*) printf 'NCCL_TOPO_FILE=%s\n' "$topo" >>"${ENROOT_ENVIRON:-/dev/null}" ;;
esac
exit 0
