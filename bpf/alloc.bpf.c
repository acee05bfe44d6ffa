// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Follows every allocation of a process.
 *
 * Programs: one generic body serves all functions of the table; a probe's
 * cookie is the row. The body hangs on three kinds of link, of which user space
 * loads what the kernel has:
 *
 *   call_session            entry and return in one (6.13)
 *   call_entry/call_return  uprobe_multi (6.6)
 *   perf_entry/perf_return  one perf event a function (6.1)
 *
 * and free_multi, free_perf for functions whose return is not needed. The
 * process_* programs watch fork and exec, loader_* the dynamic loader.
 *
 * Maps: live and sites are the truth, events carries what is new (stacks, code
 * objects, mappings), threads is scratch, counters counts all that happens.
 *
 * A call's entry and return meet in the thread's inflight slots by the stack
 * pointer: frames that a longjmp has skipped lie below it and are dropped.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "function.h"
#include "live.h"
#include "mapcall.h"
#include "throw.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* BTF holds only types that something global refers to; bpf2go needs these. */
const union {
	struct code_record code;
	struct map_record map;
	struct stack_record stack;
	struct raw_record raw;
	struct pc_record pc;
	struct event_record event;
	struct sample_record sample;
	struct python_frame frame;
	enum record_type record_type;
	enum unwind_status unwind_status;
	enum python_status python_status;
	enum counter counter;
} * wire_types __attribute__((unused));

/* Nonzero stops all counting: the target has exec'd, or user space is done. */
volatile __u32 stopped = 0;

/* The target's PID namespace and its PID there. */
const volatile __u64 pidns_dev = 0, pidns_ino = 0;
const volatile __u32 pidns_tgid = 0;

extern _Bool bpf_session_is_return(void) __ksym __weak;

static __always_inline struct function *function_get(struct pt_regs *ctx, __u32 *row)
{
	*row = bpf_get_attach_cookie(ctx);
	return bpf_map_lookup_elem(&functions, row);
}

/*
 * Is the call at the same place as the one that is beginning still running?
 * Then it has jumped to this one (realloc to malloc), and the return address of
 * both is the trampoline. Else a longjmp has left it, and its place holds a new
 * call's return address.
 */
static __always_inline int is_tail_call(struct thread *t, __u64 sp)
{
	__u64 word;

	return !read_user(&word, 8, sp) && !mapping_find(t, word - 1);
}

/* Drops the calls that are over: their frames lie below the stack pointer. */
static __always_inline void inflight_trim(struct thread *t, __u64 sp)
{
	int asked = 0, tail = 0;

	for (int i = 0; i < MAX_INFLIGHT; i++) {
		__u32 d = t->depth;
		__u64 top;

		if (!d || d > MAX_INFLIGHT)
			break;
		top = t->inflight[INDEX(d - 1, MAX_INFLIGHT)].sp;
		if (top > sp)
			break;
		if (top == sp) {
			if (!asked)
				tail = is_tail_call(t, sp);
			asked = 1;
			if (tail)
				break;
		}
		t->depth = d - 1;
	}
}

static __always_inline int on_altstack(struct task_struct *task, __u64 sp)
{
	return sp - task->sas_ss_sp < task->sas_ss_size;
}

/*
 * Would a return probe here end the target? The kernel takes a stack pointer
 * above that of a probed call for a sign that the call is over, and forgets its
 * return address. In a signal handler on an alternate stack that lies above, the
 * interrupted call is not over, and is killed when it returns (SIGILL).
 */
static __always_inline int would_harm(struct thread *t, __u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 d = t->depth;
	__u64 top;

	if (!d || d > MAX_INFLIGHT)
		return 0;
	top = t->inflight[INDEX(d - 1, MAX_INFLIGHT)].sp;
	return top < sp && on_altstack(task, sp) && !on_altstack(task, top);
}

/* Gives 1 if the return of this call must not be probed. */
static __always_inline int call_enter(struct pt_regs *ctx)
{
	__u64 sp = ctx->sp, n;
	struct function *f;
	struct inflight *c;
	struct thread *t;
	__u32 row, d;

	count(COUNT_HITS);
	if (stopped)
		return 0;
	f = function_get(ctx, &row);
	if (!f)
		return 0;
	t = thread_get();
	if (!t) {
		count(COUNT_NO_SCRATCH);
		return 0;
	}
	if (would_harm(t, sp)) {
		count(COUNT_ALTSTACK);
		return 1;
	}
	inflight_trim(t, sp);
	d = t->depth;
	if (d >= MAX_INFLIGHT) {
		count(COUNT_INFLIGHT_FULL);
		return 0;
	}
	c = &t->inflight[INDEX(d, MAX_INFLIGHT)];
	c->sp = sp;
	c->function = row;
	c->op = t->op;
	c->size = argument(ctx, f->size);
	if (f->count >= 0) {
		n = argument(ctx, f->count);
		/* On overflow the call fails, and then the size is not used. */
		c->size *= n;
	}
	if ((f->flags & FUNCTION_THROWS) && may_throw(c->size)) {
		count(COUNT_THROWS);
		return 1;
	}
	c->ptr = argument(ctx, f->ptr);
	c->out = argument(ctx, f->out);
	if (f->role >= ROLE_MAP)
		map_enter(ctx, f->role, c);
	else if (f->role == ROLE_REALLOC && c->ptr)
		resize_begin(c, f->kind);
	t->depth = d + 1;
	return 0;
}

/* Finds the entry that belongs to a return: its stack pointer was one word
 * lower, at the return address. What lies deeper is over. */
static __always_inline struct inflight *call_match(struct thread *t, __u64 sp, __u32 row)
{
	for (int i = 0; i < MAX_INFLIGHT; i++) {
		__u32 d = t->depth;
		struct inflight *c;

		if (!d || d > MAX_INFLIGHT)
			return 0;
		c = &t->inflight[INDEX(d - 1, MAX_INFLIGHT)];
		if (c->sp > sp - 8)
			return 0;
		t->depth = d - 1;
		if (c->sp == sp - 8 && c->function == row)
			return c;
	}
	return 0;
}

/* The memory that a call handed out, 0 if it failed. */
static __always_inline __u64 call_result(struct function *f, struct inflight *c, __u64 ax)
{
	__u64 address = 0;

	switch (f->result) {
	case RESULT_STATUS:
		if ((__u32)ax)
			return 0;
		if (read_user(&address, 8, c->out)) {
			count(COUNT_OUT_POINTER);
			return 0;
		}
		return address;
	case RESULT_MAP:
		return ax == ~0ULL ? 0 : ax;
	default:
		return ax;
	}
}

static __always_inline void call_return_(struct pt_regs *ctx)
{
	__u64 ax = ctx->ax, sp = ctx->sp, address;
	struct function *f;
	struct inflight *c;
	struct thread *t;
	__u32 row;

	count(COUNT_HITS);
	if (stopped)
		return;
	f = function_get(ctx, &row);
	if (!f)
		return;
	t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	c = t ? call_match(t, sp, row) : 0;
	if (!c) {
		count(COUNT_RETURN_UNKNOWN);
		return;
	}
	if (f->role >= ROLE_MAP) {
		map_return(ctx, t, f->role, c, ax);
		return;
	}
	address = call_result(f, c, ax);
	/* glibc's realloc(p, 0) calls free and returns nothing. */
	if (f->role == ROLE_REALLOC && c->ptr)
		resize_end(t, c, f->kind, address || !c->size, !address, f->flags & FUNCTION_GLIBC);
	if (!address) {
		if (f->role == ROLE_ALLOC || c->size)
			count(COUNT_FAILED_CALLS);
		return;
	}
	if (sample_hit(t, address, c->size, c->op))
		live_add(t, ctx, c, address, f->kind);
}

static __always_inline void free_enter(struct pt_regs *ctx)
{
	struct function *f;
	__u64 address;
	__u32 row;

	count(COUNT_HITS);
	if (stopped)
		return;
	f = function_get(ctx, &row);
	if (!f)
		return;
	address = argument(ctx, f->ptr);
	if (address)
		live_remove(address, f->kind, f->flags);
}

SEC("uprobe.session.s")
int call_session(struct pt_regs *ctx)
{
	if (bpf_session_is_return())
		call_return_(ctx);
	else
		return call_enter(ctx);
	return 0;
}

SEC("uprobe.multi.s")
int call_entry(struct pt_regs *ctx)
{
	call_enter(ctx);
	return 0;
}

SEC("uprobe.multi.s")
int call_return(struct pt_regs *ctx)
{
	call_return_(ctx);
	return 0;
}

SEC("uprobe.multi.s")
int free_multi(struct pt_regs *ctx)
{
	free_enter(ctx);
	return 0;
}

SEC("uprobe.s")
int perf_entry(struct pt_regs *ctx)
{
	call_enter(ctx);
	return 0;
}

SEC("uprobe.s")
int perf_return(struct pt_regs *ctx)
{
	call_return_(ctx);
	return 0;
}

SEC("uprobe.s")
int perf_free(struct pt_regs *ctx)
{
	free_enter(ctx);
	return 0;
}

static __always_inline void event_send(__u32 type)
{
	struct event_record r = { .type = type };

	r.time = bpf_ktime_get_ns();
	if (bpf_ringbuf_output(&events, &r, sizeof(r), BPF_RB_FORCE_WAKEUP))
		count(COUNT_EVENT_LOST);
}

/* The dynamic loader has changed its list of libraries. */
SEC("uprobe.multi")
int loader_multi(struct pt_regs *ctx)
{
	event_send(RECORD_LOADER);
	return 0;
}

SEC("uprobe")
int loader_perf(struct pt_regs *ctx)
{
	event_send(RECORD_LOADER);
	return 0;
}

static __always_inline int is_target(void)
{
	struct bpf_pidns_info ns = {};

	if (bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, &ns, sizeof(ns)))
		return 0;
	return ns.tgid == pidns_tgid;
}

/* After an exec the addresses mean something else: the books are closed. */
SEC("raw_tp/sched_process_exec")
int process_exec(void *ctx)
{
	if (stopped || !is_target())
		return 0;
	stopped = 1;
	event_send(RECORD_EXEC);
	return 0;
}

/* The arguments are the parent and the child, which may be a thread. */
SEC("raw_tp/sched_process_fork")
int process_fork(__u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];

	if (is_target() && BPF_CORE_READ(child, tgid) != BPF_CORE_READ(parent, tgid))
		count(COUNT_FORKS);
	return 0;
}
