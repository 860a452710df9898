# shellcheck shell=bash
# What scripts/run asks of its settings before it builds: whether each can be used on this machine. Sourced after
# machine.sh, never run. A setting that cannot be used ends the script with one line that names it and the fix.

# refuse OPTION PROBLEM FIX: the option with its name in the environment; other names stand as they are.
refuse() {
    local name=$1
    [[ $1 != --* ]] || name+=" ($(in_environment "$1"))"
    die "$name: $2; $3"
}

# The name of an option in the environment.
in_environment() {
    local name=${1#--}
    name=${name^^}
    printf 'FIRSTHOP_%s' "${name//-/_}"
}

# one_of OPTION VALUE CHOICE...
one_of() {
    local option=$1 value=$2 choice choices
    shift 2
    choices="$*"
    for choice in "$@"; do
        [ "$value" != "$choice" ] || return 0
    done
    refuse "$option" "'$value' is not one of its values" "give one of ${choices// /, }"
}

# at_most OPTION VALUE MOST: a whole number from 1 on.
at_most() {
    { [[ $2 =~ ^[1-9][0-9]{0,4}$ ]] && [ "$2" -le "$3" ]; } || refuse "$1" "'$2' is not between 1 and $3" "give a whole number that is"
}

# Whether a text is an IP address, as programs read it.
is_address() {
    local part
    local -a parts
    if [[ $1 =~ ^[0-9]{1,3}(\.[0-9]{1,3}){3}$ ]]; then
        IFS=. read -r -a parts <<<"$1"
        for part in "${parts[@]}"; do
            [[ $part =~ ^(0|[1-9][0-9]*)$ ]] && [ "$part" -le 255 ] || return 1
        done
        return 0
    fi
    local groups='([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)'
    if [[ $1 == *::* ]]; then
        # One gap, which stands for at least one group.
        [[ $1 =~ ^$groups?::$groups?$ ]] && [ "$(tr -cd : <<<"$1" | wc -c)" -le 7 ]
    else
        [[ $1 =~ ^$groups$ ]] && [ "$(tr -cd : <<<"$1" | wc -c)" -eq 7 ]
    fi
}

# An IP address in the one form that the kernel's tables have: IPv6 as 32 digits.
canonical() {
    local group left right=()
    if [[ $1 != *:* ]]; then
        printf '%s' "$1"
        return
    fi
    IFS=: read -r -a left <<<"${1%%::*}"
    [[ $1 != *::* ]] || IFS=: read -r -a right <<<"${1#*::}"
    while [ $((${#left[@]} + ${#right[@]})) -lt 8 ]; do
        left+=(0)
    done
    for group in "${left[@]}" "${right[@]}"; do
        printf '%04x' "$((16#$group))"
    done
}

# The IPv4 addresses of this machine, as far as the kernel's routes name them.
own_ipv4() { awk '$1 == "|--" { address = $2 } /\/32 host LOCAL/ && !seen[address]++ { print address }' /proc/net/fib_trie; }

# Whether an IP address is this machine's.
is_own() {
    case $1 in
        127.*) ;;
        *:*) grep -q "^$(canonical "$1") " /proc/net/if_inet6 2>/dev/null ;;
        *) grep -qxF "$1" <<<"$(own_ipv4)" ;;
    esac
}

# check_public ADDRESS...: that clients can be told them, and that the relay can listen there.
check_public() {
    local address form own
    local -A seen=()
    own=$(own_ipv4)
    [ $# -gt 0 ] || refuse --public "no address is named" "give addresses of this machine, comma-separated"
    for address in "$@"; do
        is_address "$address" || refuse --public "'$address' is no IP address" "give addresses of this machine, comma-separated"
        form=$(canonical "$address")
        [[ $form =~ [^0.] ]] || refuse --public "$address is no address that clients can reach" "give one of ${own//$'\n'/, }"
        is_own "$address" || refuse --public "$address is no address of this machine" "give some of ${own//$'\n'/, }"
        [ -z "${seen[$form]:-}" ] || refuse --public "$address is named twice" "leave one of them out"
        seen[$form]=yes
    done
}

# check_http HOST:PORT COPIES: that signaling can listen there, and its other copies on the next ports. Leaves the parts in http_host,
# http_port and http_addresses.
check_http() {
    local address
    [[ $1 =~ ^(\[[0-9a-fA-F:]+\]|[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?):[0-9]+$ ]] ||
        refuse --http "'$1' is not HOST:PORT" "give a name or address of this machine and a port, such as localhost:8080"
    http_host=${1%:*}
    http_port=${1##*:}
    at_most --http "$http_port" $((65536 - $2))
    # A name may stand for several addresses: localhost for those of both families.
    mapfile -t http_addresses < <(getent ahosts "${http_host//[\[\]]/}" | awk '{ print $1 }' | sort -u)
    [ ${#http_addresses[@]} -gt 0 ] || refuse --http "'$http_host' has no address" "give a name or address of this machine, such as localhost"
    for address in "${http_addresses[@]}"; do
        [[ $address =~ [^0.:] ]] || return 0
        ! is_own "$address" || return 0
    done
    refuse --http "$http_host (${http_addresses[0]}) is not this machine" "give a name or address of it, such as localhost"
}

# Each number of a list like 0,2 or 4-7, a line each.
expand_list() {
    local part
    for part in ${1//,/ }; do
        seq "${part%-*}" "${part#*-}"
    done
}

# check_cores CORES: a number of processors, or a list of them as the relay takes it. Leaves how many in core_count, and what there is in
# available.
check_cores() {
    local wanted core here
    mapfile -t available < <(expand_list "$(awk '/^Cpus_allowed_list:/ { print $2 }' /proc/self/status)")
    here="this machine lets the relay use ${#available[@]} (${available[*]})"
    if [[ $1 =~ ^[1-9][0-9]{0,4}$ ]]; then
        core_count=$1
        [ "$core_count" -le ${#available[@]} ] || refuse --cores "there are no $1 processors: $here" "give at most that"
        return
    fi
    [[ $1 =~ ^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$ && $1 == *[,-]* ]] ||
        refuse --cores "'$1' is neither a number of processors nor a list of them" "give one such as 1, or a list such as 0,2 or 4-7"
    mapfile -t wanted < <(expand_list "$1")
    core_count=${#wanted[@]}
    [ "$core_count" -gt 0 ] || refuse --cores "'$1' names no processor" "give a list such as 0,2 or 4-7"
    for core in "${wanted[@]}"; do
        [[ " ${available[*]} " == *" $core "* ]] || refuse --cores "there is no processor $core: $here" "give some of those"
    done
    [ "$(printf '%s\n' "${wanted[@]}" | sort -u | wc -l)" -eq "$core_count" ] || refuse --cores "'$1' names a processor twice" "leave one of them out"
}

# cores_of COPY: the processors of one of several relays. Each has its own where a number is asked for and there are enough.
cores_of() {
    local mine=()
    # shellcheck disable=SC2154 # copies and cores are the script's
    if [[ $copies -gt 1 && $cores != *[,-]* && ${#available[@]} -ge $((copies * core_count)) ]]; then
        mine=("${available[@]:$1 * core_count:core_count}")
        # As ranges: a number alone would be how many.
        printf '%s\n' "${mine[@]}" | sed 's/.*/&-&/' | paste -sd,
    else
        printf '%s' "$cores"
    fi
}

# check_key KEY: that it can stand in an HTTP header.
check_key() {
    local LC_ALL=C
    [[ $1 =~ ^[!-~]+$ ]] || refuse --key "it is empty, or has spaces or letters beyond ASCII" "give a key of printable ASCII characters"
}

# check_backend NAME URL: those of the transceiver. What else a backend needs, it is asked for itself.
check_backend() {
    local url=$2 like="like wss://models.example/v1/realtime" shown
    one_of --backend "$1" echo realtime pipecat
    [ "$1" != echo ] || return 0
    [ -n "$url" ] || refuse --backend "$1 needs a model server" "name it as FIRSTHOP_BACKEND_URL, $like"
    # A key may stand behind the path, or before the host: it is not repeated.
    shown=${url%%[?#]*}
    [[ $shown != *@* ]] || refuse FIRSTHOP_BACKEND_URL "there is a user or a password in it" "give the key as FIRSTHOP_BACKEND_KEY"
    [[ $shown =~ ^wss?://(\[[0-9a-fA-F:.]+\]|[^]/:[:space:][]+)(:[0-9]{1,5})?(/[^[:space:]]*)?$ ]] ||
        refuse FIRSTHOP_BACKEND_URL "'$shown' is not the URL of a WebSocket" "give ws:// or wss://, a host and a path, $like"
}

# check_file SETTING PATH: that there is such a file, and that it can be read. Nothing is asked of a setting that is empty.
check_file() {
    [ -n "$2" ] || return 0
    [ -e "$2" ] || refuse "$1" "there is no file $2" "name one that there is, or leave it out"
    { [ ! -d "$2" ] && [ -r "$2" ]; } || refuse "$1" "$2 cannot be read" "name a file that can"
}

# check_log FILTER: that the levels in it are levels. What else is wrong with a filter, the programs say.
check_log() {
    local part
    local -a parts
    # The fields of a span may have commas of their own.
    [[ $1 != *[\[\{]* ]] || return 0
    IFS=, read -r -a parts <<<"$1"
    for part in "${parts[@]}"; do
        [[ $part != *=* || ${part##*=} =~ ^([0-5]|[Oo][Ff][Ff]|[Ee][Rr][Rr][Oo][Rr]|[Ww][Aa][Rr][Nn]|[Ii][Nn][Ff][Oo]|[Dd][Ee][Bb][Uu][Gg]|[Tt][Rr][Aa][Cc][Ee])$ ]] ||
            refuse --log "'${part##*=}' in '$1' is no level" "give one of error, warn, info, debug, trace, or a filter such as info,relay=debug"
    done
}

declare -A claimed=()
taken=()

# claim udp|tcp ADDRESS:PORT OPTION: a port that no other option names. One that another program has is noted for refuse_taken, so that
# whoever has to choose others hears of all of them at once.
claim() {
    local port=${2##*:} other holder
    other=${claimed[$1 $port]:-$3}
    [ "$other" = "$3" ] || refuse "$3" "$1 port $port is that of $other already" "give another"
    claimed[$1 $port]=$3
    if holder=$(port_taken "$1" "$2"); then
        taken+=("$1 port $port on ${2%:*} is taken by $holder" "Stop that, or choose another with $3.")
    fi
}

# Refuses the ports that others have, if there are any.
refuse_taken() {
    local at lines=()
    [ ${#taken[@]} -gt 2 ] || { [ ${#taken[@]} -eq 0 ] || die "${taken[@]}"; return 0; }
    for ((at = 0; at < ${#taken[@]}; at += 2)); do
        lines+=("${taken[at]}. ${taken[at + 1]}")
    done
    die "$((${#taken[@]} / 2)) ports are taken" "${lines[@]}"
}

# The folder that open_state has made, if it did.
made_state=""

# Takes the folder that open_state has made away again, unless something has come into it that a run made.
forget_state() {
    rmdir "$made_state/logs" 2>/dev/null || return 0
    case $(ls -A "$made_state") in
        "" | lock | $'.gitignore\nlock') rm -rf "$made_state" ;;
        *) mkdir "$made_state/logs" ;;
    esac
}

# open_state FOLDER: makes the folder for keys and logs where it is missing, for its owner alone, and locks it on
# descriptor 8: two that write there would break each other. Whatever is started must not inherit that: 8>&-.
open_state() {
    local said mask
    [ -n "$1" ] || refuse --state "it is empty" "give a folder, or leave it out"
    # Keys in a folder of something else might be published with that.
    if [ -n "$(ls -A "$1" 2>/dev/null)" ] && ! [ -e "$1/lock" ] && ! [ -e "$1/data.toml" ]; then
        refuse --state "$1 holds other things" "give a new or an empty folder, or one of an earlier run"
    fi
    mask=$(umask)
    umask 077
    local made=""
    [ -e "$1" ] || made=$1
    said=$(mkdir -p -- "$1/logs" 2>&1) || refuse --state "the folder cannot be made (${said#mkdir: })" "give one that can be written to"
    { exec 8>>"$1/lock"; } 2>/dev/null || refuse --state "$1 cannot be written to" "give a folder that can"
    flock --nonblock 8 || refuse --state "$1 is in use by process $(cat "$1/lock")" "stop that, or choose another folder"
    # Whatever stops the start before it has made something leaves nothing behind; nobody else does who starts at the same time.
    [ -z "$made" ] || { made_state=$made && trap forget_state EXIT; }
    { echo $$ >"$1/lock"; } 2>/dev/null || refuse_full "$1/lock"
    # Wherever it lies, no commit takes the keys along.
    [ -s "$1/.gitignore" ] || { echo '*' >"$1/.gitignore"; } 2>/dev/null || refuse_full "$1/.gitignore"
    # What is built is anybody's to run.
    umask "$mask"
}

refuse_full() { refuse --state "$1 cannot be written" "make room there, or choose another folder"; }

# keep NAME: what comes in becomes this file of the state folder, whole or not at all.
keep() {
    # shellcheck disable=SC2154 # the script's
    { cat >"$state/$1.new" && mv -- "$state/$1.new" "$state/$1"; } 2>/dev/null || refuse_full "$state/$1"
}

# option_of PROGRAM SETTING: what sets a program's setting here.
option_of() {
    case $1$2 in
        *--log | *--cores | *--spin | *--workers | *--backend | *--apps | *--internal-port) printf '%s' "$2" ;;
        relay--listen) printf '%s' --public ;;
        relay--admin) printf '%s' --admin-port ;;
        transceiver--trunk | transceiver--owner) printf '%s' --trunk-port ;;
        transceiver--control) printf '%s' --control-port ;;
        signaling--listen) printf '%s' --http ;;
        signaling--metrics) printf '%s' --metrics-port ;;
        *) in_environment "$2" ;;
    esac
}
