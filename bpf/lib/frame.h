/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One step of unwinding: from a frame's registers to its caller's, by the rule
 * of its row. pkg/unwind Step does the same in user space.
 */
#ifndef UNFREED_FRAME_H
#define UNFREED_FRAME_H

#include "memory.h"

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

#endif
