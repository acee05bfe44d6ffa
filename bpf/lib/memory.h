/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading the target's memory. One helper call costs about 100 ns however short
 * it is, so the stack is read in windows and words are taken from the window.
 */
#ifndef UNFREED_MEMORY_H
#define UNFREED_MEMORY_H

#include "counter.h"
#include "thread.h"

/* Set when the programs are loaded as sleepable, which lets them wait for a
 * page that is swapped out. */
const volatile __u32 sleepable = 0;

static __always_inline int read_user(void *dst, __u32 n, __u64 addr)
{
	long err = bpf_probe_read_user(dst, n, (void *)addr);

	if (err && sleepable) {
		count(COUNT_FAULTS);
		err = bpf_copy_from_user(dst, n, (void *)addr);
	}
	return err;
}

/* Reads the window that begins at addr and ends within its page. */
static __always_inline int window_fill(struct thread *t, __u64 addr)
{
	__u32 n = 4096 - ((__u32)addr & 4095);

	if (n > WINDOW)
		n = WINDOW;
	t->window_base = t->window_end = 0;
	if (read_user(t->window, n, addr))
		return -1;
	t->window_base = addr;
	t->window_end = addr + n;
	return 0;
}

static __always_inline int read_word(struct thread *t, __u64 *word, __u64 addr)
{
	__u64 off;

	if (addr & 7)
		return read_user(word, sizeof(*word), addr);
	if (addr < t->window_base || addr + 8 > t->window_end) {
		if (window_fill(t, addr))
			return -1;
	}
	off = INDEX(addr - t->window_base, WINDOW);
	*word = *(__u64 *)(t->window + off);
	return 0;
}

#endif
