#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo: a Python service whose C extension leaks, what tracemalloc says of
# it, and what unfreed says. `make demo` installs and builds what this needs.
#
#   testdata/demo/run.sh [SECONDS]      how long to trace (10)
#
# PYTHON names the interpreter (/usr/bin/python3).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-/usr/bin/python3}
seconds=${1:-10}
profile=demo.pb.gz

if ((EUID != 0)); then
	echo "demo: attaching needs root: run \`sudo --preserve-env=PATH make demo\`" >&2
	exit 1
fi

built=$(mktemp -d)
service=
cleanup() {
	# The service is ours, and its PID is free for another only once it is waited for.
	if [[ -n $service ]]; then
		kill "$service" 2>/dev/null || true
		wait "$service" 2>/dev/null || true
	fi
	rm -rf "$built"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bold='' plain=''
if [[ -t 1 ]]; then
	bold=$'\033[1m' plain=$'\033[0m'
fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

# As wheels are built: no symbols, no frame pointers, no debug information.
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
gcc -O2 -fPIC -shared -fomit-frame-pointer -s -I "$include" \
	testdata/demo/tokenizer.c -o "$built/tokenizer.so"

say "A service starts, and is watched by tracemalloc for 5 seconds:"
mkfifo "$built/out"
PYTHONPATH=$built PYTHONDONTWRITEBYTECODE=1 "$python" -u testdata/demo/service.py 5 >"$built/out" &
service=$!
exec 3<"$built/out"
while IFS= read -r -t 120 -u 3 line; do
	[[ $line == READY* ]] && break
	printf '%s\n' "$line"
done
if [[ ${line:-} != READY* ]]; then
	echo "demo: the service did not start" >&2
	exit 1
fi

say "The same process, watched by unfreed from outside for $seconds seconds:"
echo "$ sudo unfreed attach $service --duration ${seconds}s -o $profile"
./unfreed attach "$service" --duration "${seconds}s" -o "$profile"
