#!/usr/bin/env bash
# Runs `make test` in fresh clones, each under conditions that a test must not depend on:
#
#   tests/anywhere.sh [CONDITION[+CONDITION ...] ...]
#
#   plain    a clone in a folder called ddpmon-repo
#   folder   a clone whose path has a space and "ddpmon" in it
#   user     a user who is not root (needs root, to become that user)
#   locale   LANG=C LC_ALL=C
#   zone     TZ=Asia/Kathmandu, which is 5 h 45 min east of UTC
#   tmpdir   TMPDIR in a folder of its own
#   one-core all processes on one CPU
#   busy     two processes that compute all the time
#   slow     one CPU of cgroup quota for everything (needs root)
#
# Without arguments each condition runs alone. It prints one line per run: seconds, pytest's summary and the conditions.
# ANYWHERE_PYTHON names the interpreter of the clones' environments (python3), ANYWHERE_FOLDER where the clones lie.
set -u
case "${1-}" in
    -h | --help)
        sed -n '2,/^[^#]/ { /^#/ s/^# \{0,1\}//p }' "$0"
        exit
        ;;
esac
source=$(cd "$(dirname "$0")/.." && pwd)
base=${ANYWHERE_FOLDER:-$(mktemp -d /tmp/anywhere-XXXXXX)}
python=${ANYWHERE_PYTHON:-python3}
user=ddpmon-test
hogs=()
group=
made_user=

end() {
    for hog in "${hogs[@]}"; do kill "$hog" 2> /dev/null; done
    hogs=()
    # A group can only be removed when nobody is in it: whatever a test left behind is ended here.
    if [ -n "$group" ]; then
        while read -r left; do kill -9 "$left" 2> /dev/null; done < "$group/cgroup.procs"
        sleep 1
        rmdir "$group"
        group=
    fi
}
leave() {
    end
    id "$user" > /dev/null 2>&1 && [ -n "$made_user" ] && userdel --remove "$user" 2> /dev/null
}
trap leave EXIT

# Makes a cgroup with a quota of one CPU and prints its folder.
quota() {
    local folder
    if [ -d /sys/fs/cgroup/cpu ]; then
        folder=/sys/fs/cgroup/cpu/ddpmon-anywhere-$$
        mkdir "$folder" && echo 100000 > "$folder/cpu.cfs_period_us" && echo 100000 > "$folder/cpu.cfs_quota_us" || return
    else
        folder=/sys/fs/cgroup/ddpmon-anywhere-$$
        mkdir "$folder" && echo "100000 100000" > "$folder/cpu.max" || return
    fi
    echo "$folder"
}

# The first CPU that this process may use.
first_cpu() { taskset -cp $$ | sed 's/.*: //; s/[,-].*//'; }

run() {
    local conditions=$1 place=$base/ddpmon-repo wrap=() variables=(PYTHON="$python") started log has
    has() { case "+$conditions+" in *"+$1+"*) return 0 ;; esac; return 1; }
    has folder && place="$base/a ddpmon clone"
    log=$base/$conditions.log
    rm -rf "$place"
    git clone -q "$source" "$place" || return 1
    has locale && variables+=(LANG=C LC_ALL=C)
    has zone && variables+=(TZ=Asia/Kathmandu)
    if has tmpdir; then
        mkdir -p "$base/temporary files"
        chmod 1777 "$base/temporary files"
        variables+=(TMPDIR="$base/temporary files")
    fi
    if has user; then
        id "$user" > /dev/null 2>&1 || { useradd --create-home "$user" && made_user=yes; } || return 1
        chmod 755 "$base"
        chown -R "$user" "$place"
        wrap+=(runuser -u "$user" --)
        variables+=(HOME="$(getent passwd "$user" | cut -d: -f6)")
    fi
    has one-core && wrap=(taskset -c "$(first_cpu)" "${wrap[@]}")
    if has busy; then
        for _ in 1 2; do
            "$python" -c "while True: pass" &
            hogs+=($!)
        done
    fi
    if has slow; then group=$(quota) || { echo "no cgroup with a quota can be made  [$conditions]"; return 1; }; fi
    started=$SECONDS
    (
        [ -n "$group" ] && echo "$BASHPID" > "$group/cgroup.procs"
        cd "$place" && exec "${wrap[@]}" env -u XDG_RUNTIME_DIR "${variables[@]}" make test
    ) > "$log" 2>&1 < /dev/null
    local code=$?
    echo "$((SECONDS - started)) s  $(grep -E '^[0-9]+ (passed|failed)' "$log" | tail -1)  [$conditions]  exit $code"
    end
    return $code
}

[ $# -gt 0 ] || set -- plain folder user locale zone tmpdir one-core busy slow
failed=0
for conditions in "$@"; do
    run "$conditions" || failed=1
done
echo "logs: $base"
exit $failed
