// SPDX-License-Identifier: Apache-2.0

package bpfobj

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64 -go-package bpfobj -output-stem alloc -type live_key -type outstanding -type site -type record_type -type python_frame -type stack_record -type raw_record -type code_record -type map_record -type pc_record -type event_record -type sample_record -type counter -type mapping -type unwind_info -type function alloc ../../bpf/alloc.bpf.c -- -O2 -g -Wall -Werror -D__TARGET_ARCH_x86 -I../../bpf/include -I../../bpf/lib -I/usr/include/x86_64-linux-gnu
