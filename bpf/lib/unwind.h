/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Native stacks from packed unwind rows (pkg/unwind).
 *
 * A stack is unwound from the innermost frame outwards until it meets the last
 * stack of the same thread: a frame with the same pc, sp and bp. Everything
 * outside that frame is then the same too if each word it was derived from
 * (return address, saved bp, CFA) still holds the same value, which is checked
 * word by word; if one differs, the stack is unwound to the end.
 */
#ifndef UNFREED_UNWIND_H
#define UNFREED_UNWIND_H

#include "frame.h"
#include "function.h"
#include "memory.h"
#include "rows.h"
#include "trampoline.h"

#define LAST (MAX_NATIVE - 1)

/* Take nothing from the last stack; tests compare both ways. */
const volatile __u32 no_reuse = 0;

static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h ^= v;
	h *= 0x9E3779B97F4A7C15ULL;
	return h ^ (h >> 32);
}

/* Does the frame at hand equal one of the last stack? Frames of a stack have
 * rising stack pointers, so the cursor only moves outwards. */
static __always_inline int unwind_joins(struct thread *t)
{
	__u64 sp = t->regs.sp;
	__u64 j = t->cursor;

	for (int i = 0; i < 8; i++) {
		if (j > LAST || t->last.sp[INDEX(j, MAX_NATIVE)] >= sp)
			break;
		j++;
	}
	t->cursor = j;
	if (j > LAST || !j || t->is_leaf)
		return 0;
	j = INDEX(j, MAX_NATIVE);
	return t->last.sp[j] == sp && t->last.ip[j] == t->regs.ip && t->last.bp[j] == t->regs.bp;
}

struct loop {
	struct thread *t;
};

/*
 * Finds the rule for the frame at hand. The same addresses come again and again,
 * and the arrays that hold the rows are far larger than any cache, so each
 * thread remembers those of its last addresses.
 */
static __always_inline int rule_find(struct thread *t, __u32 *info, __u32 *distance)
{
	__u64 pc = t->is_leaf ? t->regs.ip : t->regs.ip - 1;
	__u64 tag = pc | t->generation << 48;
	struct known_row *known = &t->rows[INDEX(pc ^ pc >> 8, KNOWN_ROWS)];
	struct mapping *m;

	if (known->tag == tag) {
		*info = known->info;
		*distance = known->distance;
		return UNWIND_RUNNING;
	}
	m = mapping_find(t, pc);
	if (!m && (return_address_repair(&t->regs, t->is_leaf) ||
		   (t->is_leaf && trampoline_leave(&t->regs)))) {
		/* The word on the stack stays replaced, so verification never
		 * takes this frame from the last stack. */
		count(COUNT_REPAIRED);
		t->is_leaf = 0;
		pc = t->regs.ip - 1;
		m = mapping_find(t, pc);
		known = &t->rows[INDEX(pc ^ pc >> 8, KNOWN_ROWS)];
		tag = pc | t->generation << 48;
	}
	if (!m)
		return UNWIND_NO_MAPPING;
	if (row_find(m, pc, info, distance))
		return UNWIND_NO_ROW;
	known->tag = tag;
	known->info = *info;
	known->distance = *distance;
	return UNWIND_RUNNING;
}

static long unwind_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u64 n = t->native_count;
	__u32 info, distance;
	struct unwind_info *u;

	if (n >= MAX_NATIVE) {
		t->native_status = UNWIND_TOO_DEEP;
		return 1;
	}
	if (unwind_joins(t)) {
		t->join = t->cursor;
		return 1;
	}
	t->bp_slot = NOT_A_WORD;
	t->cfa_slot = NOT_A_WORD;
	t->cfa_word = 0;
	t->native_status = rule_find(t, &info, &distance);
	n = INDEX(n, MAX_NATIVE);
	t->new.ip[n] = t->regs.ip;
	t->new.sp[n] = t->regs.sp;
	t->new.bp[n] = t->regs.bp;
	t->native_count = n + 1;
	if (t->native_status != UNWIND_RUNNING)
		return 1;
	u = bpf_map_lookup_elem(&unwind_infos, &info);
	if (!u) {
		t->native_status = UNWIND_NO_ROW;
		return 1;
	}
	t->native_status = unwind_frame(t, u, distance);
	t->new.bp_slot[n] = t->bp_slot;
	t->new.cfa_slot[n] = t->cfa_slot;
	t->new.cfa_word[n] = t->cfa_word;
	return t->native_status != UNWIND_RUNNING;
}

/* Compares the words that the frames from cursor outwards were derived from. */
static long verify_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u32 k = t->cursor;
	__u64 word, slot;

	for (int q = 0; q < 8; q++) {
		__u64 in = INDEX(k, MAX_NATIVE), out;

		if (k >= LAST) {
			slot = t->end_slot;
			t->verified = !slot || (!read_word(t, &word, slot) && !word);
			return 1;
		}
		out = INDEX(k + 1, MAX_NATIVE);
		slot = t->last.cfa_slot[in];
		if (slot == UNVERIFIABLE)
			return 1;
		if (slot && (read_word(t, &word, slot) || word != t->last.cfa_word[in]))
			return 1;
		if (read_word(t, &word, t->last.sp[out] - 8) || word != t->last.ip[out])
			return 1;
		slot = t->last.bp_slot[in];
		if (slot && (read_word(t, &word, slot) || word != t->last.bp[out]))
			return 1;
		k++;
	}
	t->cursor = k;
	return 0;
}

/* Puts the new frames, outermost first, before the suffix that was kept. */
static long place_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u32 n = t->native_count;
	__u64 src, dst;

	if (i >= n)
		return 1;
	src = INDEX(n - 1 - i, MAX_NATIVE);
	dst = INDEX(t->join - 1 - i, MAX_NATIVE);
	t->last.ip[dst] = t->new.ip[src];
	t->last.sp[dst] = t->new.sp[src];
	t->last.bp[dst] = t->new.bp[src];
	t->last.bp_slot[dst] = t->new.bp_slot[src];
	t->last.cfa_slot[dst] = t->new.cfa_slot[src];
	t->last.cfa_word[dst] = t->new.cfa_word[src];
	t->hash = mix(t->hash, t->new.ip[src]);
	t->last_hash[dst] = t->hash;
	return 0;
}

static __always_inline void registers_set(struct thread *t, struct pt_regs *ctx)
{
	t->start.ip = CTX(ctx, ip);
	t->start.sp = CTX(ctx, sp);
	t->start.bp = CTX(ctx, bp);
	t->start.ax = CTX(ctx, ax);
	t->start.di = CTX(ctx, di);
	t->start.r8 = CTX(ctx, r8);
	t->start.r9 = CTX(ctx, r9);
	t->start.r11 = CTX(ctx, r11);
	t->start.r13 = CTX(ctx, r13);
	t->start.r15 = CTX(ctx, r15);
}

static __always_inline void unwind_begin(struct thread *t)
{
	t->regs = t->start;
	t->window_base = t->window_end = 0;
	t->native_count = 0;
	t->native_status = UNWIND_RUNNING;
	t->is_leaf = 0;
	t->join = 0;
	t->cursor = MAX_NATIVE - t->kept;
}

/*
 * Unwinds the stack of a function that has just returned to the registers in
 * start. Afterwards the stack is last.*[MAX_NATIVE - native_count ..] and hash
 * names its frames.
 *
 * A global function, as the other large parts: the verifier walks it once and
 * not once for each way to each of its callers, which halves the time to load.
 */
__noinline int unwind(struct thread *t)
{
	struct loop loop = { .t = t };
	__u64 generation = mappings_generation;
	__u32 total;

	if (!t)
		return 0;
	if (t->generation != generation || no_reuse) {
		t->generation = generation;
		t->kept = 0;
	}
	if (!t->kept)
		t->end_slot = 0;
	unwind_begin(t);
	bpf_loop(MAX_NATIVE + 1, unwind_step, &loop, 0);
	if (t->join) {
		t->cursor = t->join;
		t->verified = 0;
		/* A prefix and a suffix that together are too deep are
		 * unwound afresh, to end where they would without reuse. */
		if (t->native_count <= t->join)
			bpf_loop(MAX_NATIVE, verify_step, &loop, 0);
		if (t->verified) {
			t->native_status = UNWIND_DONE;
			count_n(COUNT_REUSED_FRAMES, MAX_NATIVE - t->join);
		} else {
			count(COUNT_REUSE_REFUTED);
			t->kept = 0;
			t->end_slot = 0;
			unwind_begin(t);
			bpf_loop(MAX_NATIVE + 1, unwind_step, &loop, 0);
		}
	}
	count_n(COUNT_UNWOUND_FRAMES, t->native_count);
	if (!t->join)
		t->join = MAX_NATIVE;
	t->hash = t->join < MAX_NATIVE ? t->last_hash[INDEX(t->join, MAX_NATIVE)]
				       : mix(address_epoch, 1);
	total = t->native_count + MAX_NATIVE - t->join;
	bpf_loop(MAX_NATIVE, place_step, &loop, 0);
	t->kept = t->native_status == UNWIND_DONE ? total : 0;
	t->native_count = total;
	count(COUNT_UNWIND + (t->native_status & 7));
	return 0;
}

#endif
