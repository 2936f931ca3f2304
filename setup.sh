#!/usr/bin/env bash
# Installs the Debian 12 packages that Plimsoll needs and that are missing, and says why.
#
#   ./setup.sh demo            packages for `make demo` (the default)
#   ./setup.sh build           those, and packages for `make build`: the whole program
#   ./setup.sh test            those, and packages for the tests: real servers and clients
#   ./setup.sh bench           those, and packages for `make bench`: other servers
#   ./setup.sh --check LEVEL   changes nothing; lists what is missing
#   ./setup.sh --cargo-dir     prints the directory of a cargo that is new enough
#
# As root it runs apt-get; otherwise it prints the command to run as root. It prints nothing when
# everything is installed. It starts no service, and disables the services that it installs at boot.
# It does not install Rust: it looks for a recent enough cargo in PATH and in ~/.cargo/bin.
#
# Exit codes: 0 everything is installed, 2 something is missing, or a usage error.

set -euo pipefail
cd "$(dirname "$0")"
export LC_ALL=C

# level | command or file to look for | package | systemd unit it installs | why
PARTS='
demo  cc         build-essential  -         the linker, and the C compiler for the bundled SQLite
build clang      clang            -         compiles the BPF samplers of record --locks and --files
build pkg-config pkg-config       -         the build of libbpf, which loads them, needs it
build /usr/include/libelf.h libelf-dev - libbpf reads their object files with it
build /usr/include/zlib.h zlib1g-dev - libbpf reads a compressed kernel configuration with it
test  curl       curl             -         an independent client, for the tests
test  nghttp     nghttp2-client   -         clients of HTTP/2 and their library, for the tests
test  node       nodejs           -         a client of HTTP/2, for the tests (about 50 MB)
test  npm        npm              -         a client of a cache for CI, for the tests
test  /usr/lib/python3/dist-packages/httpx python3-httpx - a client of HTTP/2, for the tests
test  /usr/lib/python3/dist-packages/h2 python3-h2 - the same client needs it
test  go         golang-go        -         builds a client of HTTP/2, for the tests (about 450 MB)
test  nginx      nginx-light      nginx     a live server to record
test  haproxy    haproxy          haproxy   a live server to record
test  /usr/lib/python3/dist-packages/grpc python3-grpcio - a gRPC server and client, for the tests
test  promtool   prometheus       prometheus reads the metrics and their rules (about 100 MB)
test  squid      squid            squid     a live server to record
test  valgrind   valgrind         -         counts instructions, for the tests and the benchmark
test  strace     strace           -         counts reads, for the tests
test  python3    python3          -         for the tests: clients, and calls of a library
test  pip3       python3-pip      -         a client of the proxy, for the tests
test  /usr/share/doc/python3-venv python3-venv - the environments of aioquic and chdb, for the tests
test  chromium   chromium         -         a browser, for the tests (about 100 MB)
test  chromedriver chromium-driver -        drives the browser, for the tests
test  openssl    openssl          -         for the tests: certificates, and a TLS client
test  mkfs.ext4  e2fsprogs        -         for the tests: a file system that fills up or breaks
test  lighttpd   lighttpd         lighttpd  a live server that can wait with poll()
test  apache2    apache2          apache2   an origin that shows what it reads in a path
test  php        php-cli          -         another one
test  /usr/lib/python3/dist-packages/uvicorn python3-uvicorn - another one, in ASGI
test  javac      openjdk-17-jdk-headless - runs Tomcat, for the tests (about 120 MB)
test  /usr/share/java/tomcat10-embed-core.jar libtomcat10-embed-java - an origin in Java
test  varnishd   varnish          varnish   a peer in the table of costs, and a log for the tests
test  clickhouse-server clickhouse-server clickhouse-server a home of trials, for the tests
test  wrk        wrk              -         another load generator, for the studies
test  /usr/lib/python3/dist-packages/yaml python3-yaml - reads the examples, for the tests
test  /etc/ssl/certs/ca-certificates.crt ca-certificates - the image has them
test  ip         iproute2         -         a network apart, in which the tests install the package
test  logrotate  logrotate        -         rotates the log of the service, for the tests
test  systemd-analyze systemd     -         verifies the unit of the service, for the tests
bench /usr/lib/nginx/modules/ngx_stream_module.so libnginx-mod-stream - for the tunnels of nginx
bench /usr/lib/nginx/modules/ngx_http_echo_module.so libnginx-mod-http-echo - for an origin of gRPC
bench caddy      caddy            caddy     a peer in the table of costs that speaks HTTP/3
'

main() {
    local check=no level=demo
    while [ $# -gt 0 ]; do
        case "$1" in
        --check) check=yes ;;
        --cargo-dir) find_cargo && exit 0 || exit 2 ;;
        demo | build | test | bench) level=$1 ;;
        -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit 0 ;;
        *) say "unknown argument '$1' (try --help)" && exit 2 ;;
        esac
        shift
    done

    local complete=yes
    packages "$level" "$check" || complete=no
    python_packages "$level" "$check" || complete=no
    go_programs "$level" "$check" || complete=no
    toolchain "$level" || complete=no
    [ "$complete" = yes ] || exit 2
}

say() { echo "setup: $*" >&2; }

# A level and the levels it includes, smallest first.
levels_of() {
    case "$1" in
    demo) echo demo ;;
    build) echo demo build ;;
    test) echo demo build test ;;
    bench) echo demo build test bench ;;
    esac
}

# Servers are in sbin, which is not in every user's PATH. Headers are checked as files.
have() {
    case "$1" in
    /*) [ -e "$1" ] ;;
    *) PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 ;;
    esac
}

packages() {
    local levels missing=() units=() level program package unit why
    levels=" $(levels_of "$1") "
    while read -r level program package unit why; do
        [[ -n "$level" && "$levels" == *" $level "* ]] || continue
        if have "$program"; then continue; fi
        say "missing: $package ($why)"
        missing+=("$package")
        if [ "$unit" != - ]; then units+=("$unit"); fi
    done <<<"$PARTS"
    [ ${#missing[@]} -gt 0 ] || return 0

    if ! have apt-get; then
        say "this is not a Debian machine: install these yourself: ${missing[*]}"
        return 1
    fi
    if [ "$2" = yes ] || [ "$(id -u)" != 0 ]; then
        say "run as root: apt-get install -y --no-install-recommends ${missing[*]}"
        return 1
    fi
    install_quietly "${missing[@]}" || return 1
    local unit
    for unit in ${units[@]+"${units[@]}"}; do not_at_boot "$unit"; done
}

# What Debian 12 lacks, each in its own environment below target.
# package | version | module | pip's flags | why
PYTHON='
aioquic   1.7.2  aioquic --quiet   a client of HTTP/3, for the tests
chdb-core 26.9.0 chdb    --no-deps today'"'"'s ClickHouse as a library, for the tests (about 560 MB)
'
python_packages() {
    case "$1" in demo | build) return 0 ;; esac
    local package version module flags why python log status=0
    while read -r package version module flags why; do
        [ -n "$package" ] || continue
        python=target/$module/bin/python log=target/$module.log
        if [ -x "$python" ] && "$python" -c "import $module" 2>/dev/null; then continue; fi
        if [ "$2" = yes ]; then
            say "missing: $package ($why)"
            status=1
            continue
        fi
        say "installing: $package $version into target/$module"
        mkdir -p target
        if ! { python3 -m venv "target/$module" &&
            "$python" -m pip install --quiet "$flags" "$package==$version"; } \
            >"$log" 2>&1 </dev/null; then
            tail -n 20 "$log" >&2
            say "$package could not be installed"
            status=1
        fi
    done <<<"$PYTHON"
    return $status
}

# A certification authority for the tests, and its name server. Their versions are in the go.mod.
go_programs() {
    case "$1" in demo | build) return 0 ;; esac
    local pebble=github.com/letsencrypt/pebble/v2/cmd/pebble to=$PWD/target/pebble
    if [ -x "$to/pebble" ] && [ -x "$to/pebble-challtestsrv" ]; then return 0; fi
    if [ "$2" = yes ]; then
        say "missing: pebble (a certification authority, for the tests)"
        return 1
    fi
    say "installing: pebble into target/pebble"
    mkdir -p "$to"
    if ! (cd crates/plimsoll/tests/end_to_end/acme &&
        go build -o "$to/" "$pebble" "$pebble-challtestsrv") >"$to/log" 2>&1 </dev/null; then
        tail -n 20 "$to/log" >&2
        say "pebble could not be installed"
        return 1
    fi
}

# Debian starts a server as soon as its package is installed. A policy-rc.d that exits with 101 is
# the documented way to prevent that. An existing policy file is left alone.
POLICY=/usr/sbin/policy-rc.d
OURS=no
restore_policy() {
    if [ "$OURS" = yes ]; then rm -f "$POLICY"; fi
    OURS=no
}

install_quietly() {
    local log status=0
    log=$(mktemp)
    trap 'restore_policy' EXIT
    trap 'restore_policy; exit 130' INT TERM HUP
    if [ -e "$POLICY" ]; then
        say "$POLICY exists and decides whether services start"
    else
        OURS=yes
        printf '#!/bin/sh\nexit 101\n' >"$POLICY"
        chmod 755 "$POLICY"
    fi
    say "installing: $*"
    export DEBIAN_FRONTEND=noninteractive
    # An update may fail and the installation still work with old lists.
    apt-get update -qq >"$log" 2>&1 || true
    apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1 || status=$?
    restore_policy
    if [ $status != 0 ]; then
        tail -n 20 "$log" >&2
        say "apt-get failed ($status); try: apt-get install -y --no-install-recommends $*"
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# Tests and studies start these servers themselves, with their own configuration and ports.
not_at_boot() {
    if have systemctl; then
        systemctl disable --quiet "$1" >/dev/null 2>&1 || true
    elif have update-rc.d; then
        update-rc.d "$1" disable >/dev/null 2>&1 || true
    fi
}

INSTALL_RUST="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"

toolchain() {
    local dir
    if ! dir=$(find_cargo); then
        say "no cargo of at least $(wanted) in PATH or ~/.cargo/bin (Debian's own is 1.63);" \
            "this line installs one:"
        say "$INSTALL_RUST"
        return 1
    fi
    case "$1" in demo | build) return 0 ;; esac
    local component absent=()
    for component in fmt clippy; do
        PATH="$dir:$PATH" cargo $component --version >/dev/null 2>&1 && continue
        if [ $component = fmt ]; then absent+=(rustfmt); else absent+=(clippy); fi
    done
    if [ ${#absent[@]} -gt 0 ]; then
        say "this toolchain has no ${absent[*]}: rustup component add ${absent[*]}"
        return 1
    fi
}

wanted() { sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1; }

# Prints the directory of the first cargo that is new enough; 1 if there is none.
find_cargo() {
    local dir version least
    least=$(wanted)
    while read -r dir; do
        [ -n "$dir" ] && [ -x "$dir/cargo" ] || continue
        # The cargo of rustup fails if no toolchain is installed yet.
        version=$(PATH="$dir:$PATH" cargo --version 2>/dev/null | cut -d ' ' -f 2) || continue
        [ -n "$version" ] || continue
        if [ "$(printf '%s\n%s\n' "$least" "$version" | sort -V | head -n 1)" = "$least" ]; then
            echo "$dir"
            return 0
        fi
    done < <(tr : '\n' <<<"$PATH" && echo "${CARGO_HOME:-${HOME:-/nonexistent}/.cargo}/bin")
    return 1
}

main "$@"
