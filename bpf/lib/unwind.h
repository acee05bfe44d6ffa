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

#include "function.h"
#include "memory.h"

#define LAST (MAX_NATIVE - 1)
#define MAX_MAPPINGS 8192 /* a half of the mappings array */
#define MAX_INFOS (1 << 20)

/* Two halves; the one in use and its count are in mappings_in_use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_MAPPINGS);
	__type(key, __u32);
	__type(value, struct mapping);
} mappings SEC(".maps");

/* first << 32 | count, and a number that changes with every change of it. */
volatile __u64 mappings_in_use = 0;
volatile __u64 mappings_generation = 0;

/* Changes when addresses have got another meaning (a library unloaded and
 * another one in its place), so that equal addresses are another stack. */
volatile __u64 address_epoch = 0;

/* Both hold u32s, two to an element: array elements are padded to 8 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unwind_pages SEC(".maps"), unwind_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_info);
} unwind_infos SEC(".maps");

/* Take nothing from the last stack; tests compare both ways. */
const volatile __u32 no_reuse = 0;

/* UnwindInfo of the row format: flags, commands and registers. */
#define FLAG_COMMAND (1 << 0)
#define FLAG_DEREF_CFA (1 << 3)
#define FLAG_REGISTER_RA (1 << 4)
#define COMMAND_STOP 1
#define COMMAND_PLT 2
#define COMMAND_SIGNAL 3
#define COMMAND_FRAME_POINTER 4
#define DEREF_MASK 7
#define MERGE_NEGATIVE 0x80
#define REG_CFA 1
#define REG_PC 2
#define REG_SP 3
#define REG_BP 4

static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h ^= v;
	h *= 0x9E3779B97F4A7C15ULL;
	return h ^ (h >> 32);
}

static __always_inline struct mapping *mapping_find(struct thread *t, __u64 pc)
{
	__u64 in_use = mappings_in_use;
	__u32 first = in_use >> 32, lo = first, hi = lo + (__u32)in_use, k;
	struct mapping *m;

	k = t->last_mapping;
	if (k >= lo && k < hi) {
		m = bpf_map_lookup_elem(&mappings, &k);
		if (m && pc >= m->start && pc < m->end)
			return m;
	}
	for (int i = 0; i < 14 && lo < hi; i++) {
		__u32 mid = (lo + hi) >> 1;

		m = bpf_map_lookup_elem(&mappings, &mid);
		if (!m)
			return 0;
		if (pc >= m->end)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo >= first + (__u32)in_use)
		return 0;
	m = bpf_map_lookup_elem(&mappings, &lo);
	if (!m || pc < m->start || pc >= m->end)
		return 0;
	t->last_mapping = lo;
	return m;
}

static __always_inline int half_word(void *map, __u32 i, __u32 *out)
{
	__u32 k = i >> 1;
	__u64 *p = bpf_map_lookup_elem(map, &k);

	if (!p)
		return -1;
	*out = i & 1 ? *p >> 32 : *p;
	return 0;
}

/* Finds the row that holds for pc, and how far pc lies behind its start. */
static __always_inline int row_find(struct mapping *m, __u64 pc, __u32 *info, __u32 *distance)
{
	__u64 vaddr = pc - m->bias;
	__u32 page = vaddr >> 12, off = vaddr & 0xfff, lo, hi, first, row;

	if ((vaddr >> 12) + 1 >= m->page_count)
		return -1;
	if (half_word(&unwind_pages, m->page_base + page, &lo) ||
	    half_word(&unwind_pages, m->page_base + page + 1, &hi))
		return -1;
	first = lo;
	for (int i = 0; i < 13 && lo < hi; i++) {
		__u32 mid = (lo + hi) >> 1;

		if (half_word(&unwind_rows, m->row_base + mid, &row))
			return -1;
		if ((row >> 20) <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -1;
	lo--;
	if (half_word(&unwind_rows, m->row_base + lo, &row))
		return -1;
	*info = m->info_base + (row & 0xfffff);
	/* A row of an earlier page is at least that far away, which is all
	 * that a merged row asks. */
	*distance = lo < first ? 4096 : off - (row >> 20);
	return 0;
}

static __always_inline __u64 reg_get(struct registers *r, __u8 which, __u64 cfa)
{
	switch (which) {
	case REG_CFA:
		return cfa;
	case REG_PC:
		return r->ip;
	case REG_SP:
		return r->sp;
	case REG_BP:
		return r->bp;
	case 6:
		return r->ax;
	case 7:
		return r->di;
	case 8:
		return r->r8;
	case 9:
		return r->r9;
	case 10:
		return r->r11;
	case 11:
		return r->r13;
	case 12:
		return r->r15;
	}
	return 0;
}

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

/* arch/x86/include/asm/sigframe.h: the registers of rt_sigframe. */
static __always_inline int unwind_signal(struct thread *t)
{
	__u64 r[17];

	if (read_user(r, sizeof(r), t->regs.sp + 40))
		return -1;
	t->regs.r8 = r[0];
	t->regs.r9 = r[1];
	t->regs.r11 = r[3];
	t->regs.r13 = r[5];
	t->regs.r15 = r[7];
	t->regs.di = r[8];
	t->regs.bp = r[10];
	t->regs.ax = r[13];
	t->regs.sp = r[15];
	t->regs.ip = r[16];
	t->is_leaf = 1;
	t->cfa_slot = UNVERIFIABLE;
	return 0;
}

/* Moves the registers from a frame to its caller. */
static __always_inline int unwind_frame(struct thread *t, struct unwind_info *u, __u32 distance)
{
	struct registers *r = &t->regs;
	__u64 cfa, aux, word;
	__s32 param = u->param, post = 0;

	if (u->flags & FLAG_COMMAND) {
		switch (param) {
		case COMMAND_STOP:
			return UNWIND_DONE;
		case COMMAND_SIGNAL:
			return unwind_signal(t) ? UNWIND_FAULT : UNWIND_RUNNING;
		case COMMAND_PLT:
			cfa = r->sp + 8 + ((r->ip & 15) >= 11 ? 8 : 0);
			break;
		case COMMAND_FRAME_POINTER:
			t->bp_slot = r->bp;
			cfa = r->bp + 16;
			if (read_word(t, &word, r->bp))
				return UNWIND_FAULT;
			r->bp = word;
			break;
		default:
			return UNWIND_INVALID;
		}
	} else {
		if (u->merge && distance >= (u->merge & ~MERGE_NEGATIVE))
			param += u->merge & MERGE_NEGATIVE ? -8 : 8;
		if (u->flags & FLAG_DEREF_CFA) {
			post = (param & DEREF_MASK) * 8;
			param &= ~DEREF_MASK;
		}
		cfa = reg_get(r, u->base, 0) + param;
		if (u->base != REG_SP && u->base != REG_BP)
			t->cfa_slot = UNVERIFIABLE;
		if (u->flags & FLAG_DEREF_CFA) {
			if (read_word(t, &word, cfa))
				return UNWIND_FAULT;
			if (t->cfa_slot != UNVERIFIABLE) {
				t->cfa_slot = cfa;
				t->cfa_word = word;
			}
			cfa = word + post;
		}
		aux = u->aux ? reg_get(r, u->aux, cfa) + u->aux_param : 0;
		if (u->flags & FLAG_REGISTER_RA) {
			t->cfa_slot = UNVERIFIABLE;
			r->ip = aux;
			r->bp = 0;
			r->sp = cfa;
			t->is_leaf = 0;
			return r->ip ? UNWIND_RUNNING : UNWIND_INVALID;
		}
		if (aux) {
			if (u->aux != REG_CFA && u->aux != REG_SP && u->aux != REG_BP)
				t->cfa_slot = UNVERIFIABLE;
			/* As the extractor's own unwinder: an unreadable
			 * slot leaves bp alone. */
			if (!read_word(t, &word, aux)) {
				t->bp_slot = aux;
				r->bp = word;
			} else {
				t->cfa_slot = UNVERIFIABLE;
			}
		} else if (u->base == REG_BP) {
			r->bp = 0;
		}
	}
	if (read_word(t, &word, cfa - 8))
		return UNWIND_FAULT;
	r->ip = word;
	r->sp = cfa;
	t->is_leaf = 0;
	if (word)
		return UNWIND_RUNNING;
	t->end_slot = cfa - 8;
	return UNWIND_DONE;
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

static long unwind_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u32 info, distance;
	__u64 n = t->native_count;
	struct unwind_info *u;
	struct mapping *m;
	__u64 pc;

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
	pc = t->regs.ip;
	m = mapping_find(t, t->is_leaf ? pc : pc - 1);
	if (!m && (return_address_repair(&t->regs, t->is_leaf) ||
		   (t->is_leaf && trampoline_leave(&t->regs)))) {
		/* The word on the stack stays replaced, so verification never
		 * takes this frame from the last stack. */
		count(COUNT_REPAIRED);
		t->is_leaf = 0;
		pc = t->regs.ip;
		m = mapping_find(t, pc - 1);
	}
	n = INDEX(n, MAX_NATIVE);
	t->new.ip[n] = pc;
	t->new.sp[n] = t->regs.sp;
	t->new.bp[n] = t->regs.bp;
	t->native_count = n + 1;
	if (!m) {
		t->native_status = UNWIND_NO_MAPPING;
		return 1;
	}
	if (row_find(m, t->is_leaf ? pc : pc - 1, &info, &distance)) {
		t->native_status = UNWIND_NO_ROW;
		return 1;
	}
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
