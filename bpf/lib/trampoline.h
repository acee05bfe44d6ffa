/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Return addresses that are not where they belong, for the kernel has put return
 * probes in their place: ours, and those of other tracers.
 */
#ifndef UNFREED_TRAMPOLINE_H
#define UNFREED_TRAMPOLINE_H

#include "memory.h"

#define TRAMPOLINE_STACK 32 /* bytes that the kernel's trampoline pushes at most */

/*
 * A return probe replaces the return address by the address of a trampoline,
 * and the kernel keeps the original beside the stack address it belongs to.
 *
 * A signal may also come while the thread is in the trampoline itself: then
 * the function has returned, and what the trampoline has pushed lies on top.
 */
static __always_inline int return_address_repair(struct registers *r, __u32 in_trampoline)
{
	struct uprobe_task *utask = bpf_get_current_task_btf()->utask;
	__u64 slot = r->sp - 8, original = 0, where = 0;
	struct return_instance *ri;

	if (!utask)
		return 0;
	ri = utask->return_instances;
	for (int i = 0; i < 32 && ri; i++) {
		__u64 stack = ri->stack;

		if (stack == slot || (in_trampoline && !original && stack > slot &&
				      stack <= slot + TRAMPOLINE_STACK)) {
			slot = where = stack;
			original = ri->orig_ret_vaddr;
			/* Chained: a tail call, whose caller's own original
			 * is the trampoline again. */
			if (!ri->chained)
				break;
		}
		ri = ri->next;
	}
	if (!original)
		return 0;
	r->ip = original;
	r->sp = where + 8;
	return 1;
}

/*
 * The other half of the trampoline: the kernel has been called and has put the
 * original address where the trampoline's ret takes it, above the registers that
 * are popped first (arch/x86/kernel/uprobes.c, commits 190fec72df4a and
 * ba2bfc97b462). Signals come here above all, on the way out of that call.
 */
static __always_inline int trampoline_leave(struct registers *r)
{
	__u64 sp = r->sp, word;
	__u8 code[8];

	if (read_user(code, sizeof(code), r->ip))
		return 0;
#pragma unroll
	for (int i = 0; i < 5; i++) {
		if (code[i] == 0xc3) { /* ret */
			if (read_user(&word, 8, sp))
				return 0;
			r->ip = word;
			r->sp = sp + 8;
			return 1;
		}
		if (code[i] == 0x41) /* prefix of pop r11 */
			continue;
		if (code[i] < 0x58 || code[i] > 0x5f) /* pop */
			return 0;
		sp += 8;
	}
	return 0;
}

#endif
