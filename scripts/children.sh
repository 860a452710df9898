# shellcheck shell=bash
# The programs that scripts/run has started: what becomes of them, and of the others when one ends. Sourced after
# settings.sh, never run. Of several of a kind (`copies`, the script's) each has a name with a number.
# shellcheck disable=SC2154 # copies, state and log are the script's

declare -A children=() names=()
stopping=""

# name_of PROGRAM COPY: the name of one of several, which count from 0; that of its program where it is the only one.
name_of() { if [ "$copies" -eq 1 ]; then printf '%s' "$1"; else printf '%s-%s' "$1" $(($2 + 1)); fi; }

# The signal that ends one at once, though it may drain.
ends_by() { case $1 in transceiver*) printf INT ;; *) printf TERM ;; esac; }

# start NAME PROGRAM ARGUMENTS...: starts a program whose log goes to a file. It gets a process group of its own, so that a
# Ctrl-C reaches this script alone, and a signal from the kernel should this script be killed.
start() {
    local name=$1 command=("${@:2}")
    ! have setpriv || command=(setpriv --pdeathsig "$(ends_by "$name")" -- "${command[@]}")
    # Here and not by the program's own redirection: whoever looks for its words must not find those of an earlier run.
    : >"$state/logs/$name.log"
    set -m
    NO_COLOR=1 FIRSTHOP_LOG=$log "${command[@]}" </dev/null >>"$state/logs/$name.log" 2>&1 8>&- &
    set +m
    children[$name]=$!
    names[$!]=$name
}

# Stops what runs, and waits for each: the transceivers first, so that their goodbyes still find a relay to go through.
stop_all() {
    local kind name pid left
    for kind in transceiver relay signaling redis; do
        for name in "${!children[@]}"; do
            [[ $name = "$kind"* ]] || continue
            pid=${children[$name]}
            unset "children[$name]"
            kill "-$(ends_by "$name")" "$pid" 2>/dev/null || continue
            for ((left = 100; left > 0; left--)); do
                kill -0 "$pid" 2>/dev/null || break
                sleep 0.1
            done
            if [ "$left" -eq 0 ]; then
                echo "$name did not stop within 10 s; killing it." >&2
                kill -KILL "$pid" 2>/dev/null || true
            fi
            wait "$pid" 2>/dev/null || true
        done
    done
}

last_words() {
    echo "$1 ended with status $2; the end of $state/logs/$1.log:"
    tail -n 10 "$state/logs/$1.log" | sed 's/^/  /'
}

# Says which program ended, with its last words, stops the others and fails. A setting that it refused is named as it
# is called here.
ended() {
    local name=$1 status=$2 program=${1%-[0-9]} last
    [ -z "$stopping" ] || return 0
    stopping=yes
    unset "children[$name]"
    last=$(tail -n 1 "$state/logs/$name.log")
    if [ "$status" -eq 2 ] && [[ $last =~ ^$program:\ (--[a-z-]+):\ (.*)\;\ (.*)$ ]]; then
        stop_all
        refuse "$(option_of "$program" "${BASH_REMATCH[1]}")" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
    fi
    {
        last_words "$name" "$status"
        echo "Stopping the others."
    } >&2
    stop_all
    exit 1
}

# goes_on PID STATUS: whether the others can do without the one that ended. Then it says which that was, and what becomes
# of its work.
goes_on() {
    local name=${names[$1]} status=$2 one other=""
    local program=${name%-[0-9]}
    for one in "${!children[@]}"; do
        [[ $one = "$name" || $one != "$program"-* ]] || other=$one
    done
    [[ -n $other || $name = redis ]] || return 1
    unset "children[$name]" "names[$1]"
    echo
    if [ "$status" -eq 0 ]; then
        echo "$name has ended in good order."
    else
        last_words "$name" "$status"
    fi
    case $program in
        relay) echo "Clients that were told both addresses go on through $other; new calls are told its address alone." ;;
        transceiver) echo "New calls go to $other, and clients that are cut off call again." ;;
        signaling) echo "Calls go on; $other serves all of them, those that $name placed too." ;;
        redis) echo "Calls go on. A relay that starts again now waits for its clients' next checks." ;;
    esac
}

interrupted() {
    trap '' INT TERM HUP
    stopping=yes
    echo
    echo "Stopping ..."
    stop_all
    echo "Stopped."
    exit 0
}

# await SECONDS PROBLEM COMMAND...: waits until the command succeeds. A program that ends meanwhile stops everything.
await() {
    local left name pid status
    for ((left = 10 * $1; left > 0; left--)); do
        ! "${@:3}" || return 0
        for name in "${!children[@]}"; do
            pid=${children[$name]}
            ! kill -0 "$pid" 2>/dev/null || continue
            status=0
            { wait "$pid" || status=$?; } 2>/dev/null
            ended "$name" "$status"
        done
        sleep 0.1
    done
    echo "$2 within $1 s; see $state/logs." >&2
    exit 1
}

# wait_any PID...: waits until one of them ends; leaves which in pid, and how in status. Of a process whose end bash has
# noted between two commands of this script, `wait -n` says nothing: those are looked for first.
wait_any() {
    status=0
    for pid in "$@"; do
        kill -0 "$pid" 2>/dev/null || { wait "$pid" || status=$?; return 0; }
    done
    wait -n -p pid "$@" || status=$?
}
