# What the lab's tests share. XC_STAGE is where `make install` has put the build.

bats_require_minimum_version 1.5.0
HERE=$(dirname "${BASH_SOURCE[0]}")
. "$HERE/../expect.bash"
: "${XC_STAGE:?"XC_STAGE: where is the build installed?"}"

lab_up() {
    "$HERE/lab" stop
    "$HERE/lab" start 3>&-
    guest - <<EOF
mkdir -p /etc/xcloud
echo 'optional $XC_STAGE/lib/slurm/xcloud_bind.so' >/etc/slurm/plugstack.conf.d/90-xcloud.conf
ln -sf $XC_STAGE/bin/xcloud $XC_STAGE/bin/xcloud-exec /usr/local/bin/
EOF
}
lab_down() { "$HERE/lab" stop; }

guest() { "$HERE/lab" run "$@" 3>&-; } # as root
as_user() { guest "cd /home/lab && runuser -u lab -- $*"; }

# A batch job, until it has ended: sbatch --wait looks after 2, 10, 42 and 74 s.
batch() { # SBATCH-ARGUMENTS…
    guest - <<EOF
cd /home/lab
job=\$(runuser -u lab -- sbatch --parsable $*)
while [ -n "\$(squeue -h -j "\$job" 2>/dev/null)" ]; do sleep 0.5; done
EOF
}

policy() { # a policy that binds; its defaults from standard input
    { printf "cat >/etc/xcloud/policy.yaml <<'Y'\nversion: 1\nmode: bind\ndefaults:\n"; sed 's/^/  /'; echo Y; } | guest -
}

allowed='grep Cpus_allowed_list /proc/self/status | cut -f2'
