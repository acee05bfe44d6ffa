#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what a purpose needs, on a Debian machine with root and apt:
#
#   .ci/deps.sh demo | test | generate | lint | vm | bench | all
#
# Does nothing, quickly, where everything is there. Without root it names what
# is missing and goes on, since the tests that need it then say so themselves.
set -euo pipefail

# Alternatives stand as "a|b": releases name them differently. "command@a" is
# wanted only where there is no such command, from wherever it came.
demo=(gcc libc6-dev python3 python3-dev)
test=(
	gcc g++ libc6-dev make binutils gcc-multilib musl-tools # targets
	clang rustc@rustc xz-utils dwz libc6-dbg llvm           # more compilers, oracles
	python3 python3-dev python3-numpy python3-torch         # Python targets
	libjemalloc2 "libmimalloc2.0|libmimalloc3"              # other allocators
	"libtcmalloc-minimal4|libtcmalloc-minimal4t64" "libgoogle-perftools4|libgoogle-perftools4t64"
	chromium                                                # screenshots of the web UI
	debootstrap                                             # CPythons of other releases
)
generate=(clang-14 llvm-14 libbpf-dev libc6-dev git)
lint=(clang-format-14 shellcheck git)
vm=(qemu-system-x86 cpio xz-utils)
bench=(bpftrace gdb python3-venv python3-torch gcc libc6-dev debootstrap)

missing() {
	local want name
	for want in "$@"; do
		if [[ $want == *@* ]]; then
			type -P "${want%@*}" >/dev/null && continue
			want=${want#*@}
		fi
		for name in ${want//|/ }; do
			if [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]]; then
				continue 2
			fi
		done
		echo "$want"
	done
}

# The first of the alternatives that apt can install.
available() {
	local name
	for name in ${1//|/ }; do
		if [[ $(apt-cache policy "$name" 2>/dev/null) == *"Candidate: "[0-9]* ]]; then
			echo "$name"
			return
		fi
	done
	echo "${1%%|*}" # let apt say that there is none
}

install() {
	local need=() want
	mapfile -t need < <(missing "$@")
	((${#need[@]})) || return 0
	if ((EUID != 0)); then
		echo "deps: missing, and only root can install: ${need[*]}" >&2
		return 0
	fi
	export DEBIAN_FRONTEND=noninteractive
	local apt=(apt-get -q -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0)
	echo "deps: installing ${need[*]}" >&2
	"${apt[@]}" update >&2
	local names=()
	for want in "${need[@]}"; do
		names+=("$(available "$want")")
	done
	"${apt[@]}" install -y --no-install-recommends "${names[@]}" >&2
}

# bootstrap SUITE PACKAGE... puts a release into /var/tmp/unfreed-SUITE, where
# the tests look for CPythons (pkg/testutil); the first package is one. It is
# built aside and moved, so that what is there is whole.
bootstrap() {
	local suite=$1 dir=/var/tmp/unfreed-$1 include
	include=$(IFS=, && echo "${*:2}")
	[[ -x $dir/usr/bin/$2 ]] && return 0
	((EUID == 0)) || return 0
	local scripts=/usr/share/debootstrap/scripts part
	# Older debootstraps do not know newer suites; all are like sid.
	[[ -e $scripts/$suite ]] || ln -s sid "$scripts/$suite"
	part=$(mktemp -d /var/tmp/unfreed-part-XXXXXX)
	echo "deps: bootstrapping Debian's $suite with $include" >&2
	if ! debootstrap --variant=minbase --include="$include" "$suite" "$part" >"$part.log" 2>&1; then
		tail -n 20 "$part.log" >&2
		echo "deps: BOOTSTRAPPING $suite DID NOT WORK: tests that need $* will fail in CI" >&2
		rm -rf --one-file-system "$part" "$part.log"
		return 0
	fi
	chmod 755 "$part" # as debootstrap leaves it where it makes the folder
	rm -rf --one-file-system "$dir" "$part.log"
	mv "$part" "$dir"
}

# The tests want three versions of CPython: this machine's, 3.14 (which has the
# tail-calling interpreter), and any third, unless a pyenv has them.
pythons() {
	bootstrap forky python3.14
	if ! compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.*/bin/python3" >/dev/null; then
		bootstrap trixie python3.13
	fi
}

# libbpf-tools' memleak, which this machine's release may be too old to have;
# the benchmark runs the newer release's in place.
memleak() {
	type -P memleak-libbpf >/dev/null && return 0
	bootstrap forky python3.14
	local root=/var/tmp/unfreed-forky
	[[ -x $root/usr/sbin/memleak-libbpf ]] && return 0
	((EUID == 0)) && [[ -d $root ]] || return 0
	echo "deps: installing libbpf-tools in $root" >&2
	chroot "$root" /bin/sh -c 'apt-get -q update && apt-get -q install -y --no-install-recommends libbpf-tools' >&2 ||
		echo "deps: INSTALLING memleak DID NOT WORK: the benchmark goes without" >&2
}

case ${1:-} in
demo) install "${demo[@]}" ;;
test) install "${test[@]}" && pythons ;;
generate) install "${generate[@]}" ;;
lint) install "${lint[@]}" ;;
vm) install "${vm[@]}" ;;
bench) install "${bench[@]}" && memleak ;;
all) install "${demo[@]}" "${test[@]}" "${generate[@]}" "${lint[@]}" "${vm[@]}" && pythons ;;
*)
	sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
