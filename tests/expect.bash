# What all bats files say with: a failure shows what came and what was wanted.

expect() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || { printf '%s\n got: %s\nwant: %s\n' "$1" "$2" "$3" >&2; return 1; }
}

contains() { # TEXT PART
    case $1 in *"$2"*) ;; *) printf 'in:\n%s\nis missing: %s\n' "$1" "$2" >&2; return 1 ;; esac
}

lacks() { # TEXT PART
    case $1 in *"$2"*) printf 'in:\n%s\nis, and should not be: %s\n' "$1" "$2" >&2; return 1 ;; *) ;; esac
}

disjoint() { # CPU lists
    python3 - "$1" "$2" <<'PY'
import sys
def cpus(text):
    out = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        out |= set(range(int(low), int(high or low) + 1))
    return out
both = cpus(sys.argv[1]) & cpus(sys.argv[2])
sys.exit(f"{sys.argv[1]} and {sys.argv[2]} share {sorted(both)}" if both else 0)
PY
}
