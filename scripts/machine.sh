# shellcheck shell=bash
# What the scripts ask of the machine: packages that are missing, ports that are taken, and what the
# kernel must allow. Sourced, never run. Everything that fails says what to do about it.

# Says why the script stops, and stops it. Exit status 2 means: nothing was started.
die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
    exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# need_debian COMMAND=PACKAGE ...: installs the packages whose commands are missing, all in one go. A name that begins
# with / is a file to look for in place of a command.
need_debian() {
    local pair missing=()
    for pair in "$@"; do
        case $pair in
            /*) [ -e "${pair%%=*}" ] || missing+=("${pair#*=}") ;;
            *) have "${pair%%=*}" || missing+=("${pair#*=}") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    local install=(apt-get install -y --no-install-recommends "${missing[@]}") as=()
    have apt-get || die "missing: ${missing[*]} (Debian's names)" "Install them with this system's package manager, then run this again."
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || die "missing: ${missing[*]}" "As root: ${install[*]}"
        as=(sudo)
    fi
    echo "Installing ${missing[*]} ..."
    # Another package manager may hold the lock for a while (a new machine updates itself).
    local wait=(-o DPkg::Lock::Timeout=300 -qq)
    "${as[@]}" apt-get "${wait[@]}" update >/dev/null || true
    "${as[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" "${wait[@]}" >/dev/null ||
        die "could not install ${missing[*]}" "By hand: ${as[*]} ${install[*]}"
}

# What it takes to build: cargo, and cmake and a C compiler for the bundled libopus and aws-lc.
need_build_tools() {
    if ! have cargo; then
        # A shell that was open while rustup installed it does not know it yet.
        if [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
            PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
        else
            die "cargo is not installed" "Install Rust with rustup (https://rust-lang.org/tools/install), then run this again."
        fi
    fi
    need_debian cc=gcc c++=g++ make=make cmake=cmake
}

# Where the Python packages of the tests lie, which the demo uses too.
venv=$PWD/tests/e2e/.venv

# Prints the path of a Python that is new enough.
system_python() {
    local python
    have python3.11 || need_debian python3=python3 >&2
    python=$(command -v python3.11 || command -v python3) || die "python3 is not installed" "As root: apt-get install -y python3 python3-venv"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed"
    printf '%s\n' "$python"
}

# install_wheels FILE WHAT FIX: installs there what this lock file has, and nothing else.
install_wheels() {
    local said
    said=$("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$1" 2>&1) ||
        die "could not install $2 (${said##*$'\n'})" "$3"
}

# The Python packages and the Rust tools among them, exactly those of the lock file, again when it has changed.
need_python() {
    local python stamp
    python=$(system_python)
    stamp=$(sha256sum "tests/e2e/requirements.lock")
    [ "$(cat "$venv/installed" 2>/dev/null)" != "$stamp" ] || return 0
    # What a link leads to is somebody else's, and would be cleared.
    [ ! -L "$venv" ] || die "$venv is a link to packages of another lock file" "Remove the link, then run this again."
    "$python" -c 'import ensurepip, venv' 2>/dev/null || need_debian "/no-such-file=python3-venv"
    echo "Installing the Python packages of tests/e2e/requirements.lock ..."
    "$python" -m venv --clear "$venv"
    install_wheels "tests/e2e/requirements.lock" "the Python packages" "They come from PyPI, once: go online, then run this again."
    printf '%s\n' "$stamp" >"$venv/installed"
}

# build_programs PROFILE [ARGUMENTS]: builds the programs that run. Everything that starts them builds them by this one command: another
# selection of packages could have other features, and cargo would build half of the dependencies again. What else is
# built, by more arguments, must not change them: perf does not.
build_programs() {
    local build=(cargo build --locked --profile "$1" --bins
        -p firsthop-relay -p firsthop-transceiver -p firsthop-signaling -p firsthop-shared "${@:2}")
    # The first build takes minutes: whoever watches sees how far it is.
    if [ -t 2 ]; then
        "${build[@]}"
    else
        "${build[@]}" 2>&1 | say_how_far >&2
    fi
}

# What cargo says, less what a log has no use for: of the packages it tells how many there have been, now and then.
say_how_far() {
    local line packages=0
    while IFS= read -r line; do
        if [[ $line =~ ^\ *Compiling\  ]]; then
            packages=$((packages + 1))
            [ $((packages % 50)) -ne 0 ] || echo "$packages packages so far ..."
        elif ! [[ $line =~ ^\ *(Updating|Locking|Downloading|Downloaded|Finished)\  ]]; then
            printf '%s\n' "$line"
        fi
    done
}

# What is built: the commit, and whether the tree has changes besides results.
commit() {
    local commit
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    [ -z "$(git status --porcelain --untracked-files=no -- . ':!perf/results' 2>/dev/null)" ] || commit+=-dirty
    echo "$commit"
}

# The folder into which cargo builds, for a profile.
build_folder() {
    local folder=$1
    [ "$folder" != dev ] || folder=debug
    printf '%s/%s\n' "${CARGO_TARGET_DIR:-target}" "$folder"
}

# An IPv4 address of this machine that others can reach: the source of the default route, or else the first that is
# not loopback; nothing when there is none.
own_address() {
    local address=""
    if have ip; then
        # "get" asks the routing table only; nothing is sent.
        address=$(ip -4 route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p;q')
        [ -n "$address" ] || address=$(ip -4 -o address show scope global up 2>/dev/null | awk '{sub("/.*", "", $4); print $4; exit}')
    elif have hostname; then
        address=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m1 -E '^[0-9]+(\.[0-9]+){3}$' || true)
    fi
    case $address in 127.*) ;; *) printf '%s' "$address" ;; esac
}

# port_taken udp|tcp ADDRESS:PORT: whether a socket already listens there, or on the wildcard address. Prints the
# process, as far as it may be seen. Reads /proc alone: a new machine has no ss.
port_taken() {
    local protocol=$1 address=${2%:*} port=${2##*:} inode holder tables=("/proc/net/$1")
    [ ! -r "/proc/net/${protocol}6" ] || tables+=("/proc/net/${protocol}6")
    inode=$(awk -v protocol="$protocol" -v port="$port" -v wanted="$address" '
        function hexadecimal(number, digits) { return sprintf("%0" digits "X", number) }
        BEGIN {
            # The kernel prints IPv4 addresses as 32-bit numbers of the host: little-endian here.
            if (split(wanted, part, ".") == 4)
                mine = hexadecimal(part[4], 2) hexadecimal(part[3], 2) hexadecimal(part[2], 2) hexadecimal(part[1], 2)
            port = hexadecimal(port, 4)
        }
        FNR > 1 {
            split($2, local, ":")
            if (local[2] != port || (protocol == "tcp" && $4 != "0A")) next
            if (local[1] ~ /^0+$/ || local[1] == mine || mine == "00000000" || (mine == "" && length(local[1]) == 32)) {
                print $10
                exit
            }
        }' "${tables[@]}")
    [ -n "$inode" ] || return 1
    for holder in /proc/[0-9]*; do
        if find "$holder/fd" -lname "socket:\[$inode\]" 2>/dev/null | grep -q .; then
            printf '%s (process %s)' "$(cat "$holder/comm" 2>/dev/null)" "${holder##*/}"
            return 0
        fi
    done
    printf 'a process of another user'
}

# check_kernel CORES: what the relay's rings need of the kernel, for so many cores.
check_kernel() {
    local cores=$1 release disabled limit needed
    release=$(uname -r)
    # 6.1 is the first with multishot receives, provided buffer rings and deferred task work together.
    if [ "$(printf '%s\n6.1\n' "${release%%[!0-9.]*}" | sort -V | head -n1)" != 6.1 ]; then
        die "the kernel is too old: $release" "The relay needs Linux 6.1 or newer (io_uring with multishot receives)."
    fi
    disabled=$(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null || echo 0)
    if [ "$disabled" = 2 ] || { [ "$disabled" = 1 ] && [ "$(id -u)" -ne 0 ]; }; then
        die "io_uring is disabled on this machine (kernel.io_uring_disabled = $disabled)" \
            "As root: sysctl -w kernel.io_uring_disabled=0"
    fi
    # What each of the relay's executors locks.
    needed=$((cores * 512))
    ulimit -S -l "$(ulimit -H -l)" 2>/dev/null || true
    limit=$(ulimit -l)
    if [ "$limit" != unlimited ] && [ "$limit" -lt "$needed" ]; then
        die "too little memory may be locked: $limit KiB (ulimit -l), the relay needs $needed KiB" \
            "As root, in /etc/security/limits.conf: $(id -un) - memlock $needed; then log in again. Or use fewer cores."
    fi
}

# http_status HOST PORT PATH: the status of a GET, or nothing. With bash alone: a new machine may have no curl.
http_status() {
    local status=""
    if { exec 9<>"/dev/tcp/$1/$2"; } 2>/dev/null; then
        printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$3" "$1" >&9
        read -r -t 5 _ status _ <&9 || true
        exec 9<&- 9>&-
    fi
    printf '%s' "$status"
}

# http_body HOST PORT PATH: what a GET is answered with, its head included, or nothing.
http_body() {
    if { exec 9<>"/dev/tcp/$1/$2"; } 2>/dev/null; then
        printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$3" "$1" >&9
        timeout 5 cat <&9 || true
        exec 9<&- 9>&-
    fi
}

# Debian starts a service as soon as its package is installed. These are only programs here. In a shell of its own: whatever
# ends the installation, what forbids services is taken away again.
without_services() (
    policy=/usr/sbin/policy-rc.d as=()
    if [ "$(id -u)" -ne 0 ]; then
        ! have sudo || as=(sudo)
    fi
    if [ ! -e $policy ] && { [ "$(id -u)" -eq 0 ] || [ ${#as[@]} -gt 0 ]; }; then
        trap '"${as[@]}" rm -f $policy' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${as[@]}" tee $policy >/dev/null
        "${as[@]}" chmod 755 $policy
    fi
    "$@"
)
