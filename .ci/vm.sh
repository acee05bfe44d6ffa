#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs Go tests on other kernels: Debian's cloud kernels, booted in qemu over
# this machine's own file system, mounted read-only through virtiofs. Compilers,
# Pythons and libraries are thus the same as here, and only the kernel differs.
#
#   .ci/vm.sh [-k 6.1,6.12] [-t SECONDS] PACKAGE... [-- -TEST-FLAG=VALUE...]
#   .ci/vm.sh [-k 6.1,6.12] [-t SECONDS] -c COMMAND
#
#   -k   the kernels (default: both)
#   -t   the longest that one machine may run (default: 600)
#   -c   a shell command to run instead of tests
#
# As root, since what it downloads and shares is root's. The kernels are kept in
# bin/vm, and KERNEL.log, the console of the last run. VM_ACCEL=kvm uses the
# processor's virtualization, where that works; the default emulates, so that it
# runs everywhere. Do not edit files under test meanwhile: the machine sees them.
set -euo pipefail
cd "$(dirname "$0")/.."

kernels=6.1,6.12 limit=600 command=
while getopts k:t:c: option; do
	case $option in
	k) kernels=$OPTARG ;;
	t) limit=$OPTARG ;;
	c) command=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

top=$PWD
dir=$top/bin/vm
# One thread for all CPUs: with one each, the emulator loses patched instructions
# and kernels die of it.
accel=${VM_ACCEL:-tcg,thread=single}
mkdir -p "$dir"
# What belongs to this run alone, where the machine sees it too.
run=$(mktemp -d "$dir/run.XXXXXX")
scratch=$(mktemp -d) # a socket's name must be short
socket=$scratch/fs
server=
trap 'stop; rm -rf "$run" "$scratch"' EXIT

fail() {
	echo "vm: $*" >&2
	exit 1
}

# Debian's archive, with lists of our own: the machine's may lack these suites.
apt_options() {
	mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
	printf 'deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/%s main\n' \
		'debian bookworm' 'debian-security bookworm-security' >"$dir/apt/sources.list"
	echo -q -o "Dir::Etc::SourceList=$dir/apt/sources.list" -o Dir::Etc::SourceParts=- \
		-o "Dir::State::Lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache" \
		-o APT::Architecture=amd64 -o APT::Sandbox::User=root -o Acquire::Languages=none \
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
}

# fetch KERNEL unpacks the newest build of a kernel into bin/vm/KERNEL, once for
# all runs.
fetch() (
	kernel=$1
	flock 9
	[[ ! -d $dir/$kernel/boot ]] || exit 0
	case $kernel in
	6.1) meta=linux-image-cloud-amd64 ;;
	*) meta=linux-image-$kernel-cloud-amd64 ;;
	esac
	read -ra options <<<"$(apt_options)"
	apt-get "${options[@]}" update >&2
	package=$(apt-cache "${options[@]}" depends "$meta" | awk '/Depends: linux-image-/ {print $2; exit}')
	[[ $package ]] || fail "Debian offers no $meta"
	mkdir "$run/kernel"
	cd "$run/kernel"
	apt-get "${options[@]}" download "$package" >&2
	dpkg-deb -x ./*.deb .
	rm ./*.deb
	mv "$run/kernel" "$dir/$kernel"
	echo "vm: kernel $kernel is $package" >&2
) 9>"$dir/lock"

# What the kernels need to find the file system, each after those that it needs;
# what a kernel has built in is skipped. overlay is for the tests.
modules=(virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fuse virtiofs overlay)

# initramfs KERNEL packs process 1 and the modules.
initramfs() {
	local tree=$run/$1 module file number=10
	mkdir -p "$tree/modules"
	cp "$run/init" "$tree/init"
	for module in "${modules[@]}"; do
		file=$(find "$dir/$1/lib/modules" "(" -name "$module.ko" -o -name "$module.ko.xz" ")" -print -quit)
		case $file in
		*.ko) cp "$file" "$tree/modules/$number-$module.ko" ;;
		*.xz) xz -dc "$file" >"$tree/modules/$number-$module.ko" ;;
		esac
		((number++))
	done
	(cd "$tree" && find . | cpio --quiet -o -H newc) >"$run/$1.cpio"
}

# share starts the server of the root file system; its process id is in $server.
share() {
	local log=$1 program
	for program in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do
		[[ -x $program ]] && break
	done
	case $program in
	/usr/lib/qemu/*) set -- -o "source=/,sandbox=chroot,cache=always,no_posix_lock,no_flock" ;;
	*) set -- --shared-dir / --sandbox chroot --cache always ;;
	esac
	"$program" "--socket-path=$socket" "$@" >"$log" 2>&1 &
	server=$!
	for ((i = 0; i < 100; i++)); do
		[[ -S $socket ]] && return
		kill -0 $server 2>/dev/null || break
		sleep 0.05
	done
	cat "$log" >&2
	fail "virtiofsd did not start"
}

# stop ends the server, which otherwise ends with the machine.
stop() {
	[[ ! $server ]] || kill "$server" 2>/dev/null || true
	server=
}

# boot KERNEL runs the job there.
boot() {
	local kernel=$1 log=$run/$1.log started=$SECONDS last
	share "$run/virtiofsd.log"
	echo "== Linux $kernel"
	timeout --foreground "$limit" qemu-system-x86_64 \
		-accel "$accel" -machine q35 -cpu max -smp 2 \
		-m 2G -object memory-backend-memfd,id=memory,size=2G,share=on -numa node,memdev=memory \
		-nodefaults -no-user-config -no-reboot -display none -serial stdio \
		-chardev "socket,id=fs,path=$socket" -device vhost-user-fs-pci,chardev=fs,tag=host \
		-kernel "$dir/$kernel"/boot/vmlinuz-* -initrd "$run/$kernel.cpio" \
		-append "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog random.trust_cpu=on rdinit=/init -- /bin/bash $run/job.sh" \
		</dev/null 2>&1 | tr -d '\r' | tee "$log" || true
	stop
	rm -f "$socket"
	last=$(grep -a '^vm: ' "$log" | tail -n 1) || true
	mv "$log" "$dir/$kernel.log"
	case $last in
	"vm: exit status 0") echo "== Linux $kernel: ok ($((SECONDS - started)) s)" ;;
	"vm: "*) echo "== Linux $kernel: FAILED ($((SECONDS - started)) s; console: $dir/$kernel.log)" && return 1 ;;
	*) echo "== Linux $kernel: NO RESULT within $limit s (console: $dir/$kernel.log)" && return 1 ;;
	esac
}

# job writes what the machine runs.
job() {
	cat <<-END
		export PATH='$PATH' HOME='$HOME' CI='${CI:-}' REQUIRE_BPF=1 TMPDIR=/dev/shm
		uname -sr
		cd '$top'
	END
	if [[ $command ]]; then
		printf '%s\n' "$command"
		return
	fi
	echo 'status=0'
	local package name folder
	for package in "${packages[@]}"; do
		folder=$(go list -f '{{.Dir}}' "$package")
		name=${folder#"$top"/}
		CGO_ENABLED=0 go test -c -o "$run/${name//\//-}.test" "$package" >&2
		# Shortly before the machine's time is up, so that a test that hangs says where.
		# shellcheck disable=SC2016 # for the machine's shell
		printf 'cd %q && echo %q && %q -test.timeout $((%d - SECONDS))s' \
			"$folder" "-- $name" "$run/${name//\//-}.test" $((limit - 40))
		((${#flags[@]} == 0)) || printf ' %q' "${flags[@]/#-/-test.}"
		printf ' || status=1\n'
	done
	# shellcheck disable=SC2016
	echo 'exit $status'
}

packages=() flags=()
for word in "$@"; do
	case $word in
	--) ;;
	-*) flags+=("$word") ;;
	*) packages+=("$word") ;;
	esac
done
[[ $command || ${#packages[@]} -gt 0 ]] || fail "nothing to run: name packages, or a command with -c"
for tool in qemu-system-x86_64 cpio xz dpkg-deb apt-get; do
	type -P "$tool" >/dev/null || fail "$tool is missing (install it with .ci/deps.sh vm)"
done

CGO_ENABLED=0 go build -o "$run/init" ./testdata/vm
job >"$run/job.sh"
result=0
for kernel in ${kernels//,/ }; do
	fetch "$kernel"
	initramfs "$kernel"
	boot "$kernel" || result=1
done
exit $result
