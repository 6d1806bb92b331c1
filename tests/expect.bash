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
