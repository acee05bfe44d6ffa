/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CPython's frames, by the offsets that user space found (pkg/python).
 *
 * The current thread's state is the one whose thread_id is this thread's
 * fsbase (pthread_self of glibc and musl): the runtime's own "current" pointer
 * is wrong while the interpreter lock is released.
 */
#ifndef UNFREED_PYTHON_H
#define UNFREED_PYTHON_H

#include "sample.h"
#include "unwind.h"

#define MAX_INTERPRETERS 64
#define MAX_PYTHON_THREADS 4096
#define FRAME_READ 128 /* bytes that hold all fields read of a frame */
#define IDENT_WORDS 4

const volatile struct python_layout python = {};

/* A word of the copied thread state. */
static __always_inline __u64 tstate_word(struct thread *t, __u32 off)
{
	if (off > THREAD_READ - 8)
		return 0;
	return *(__u64 *)(t->tstate_copy + off);
}

/* A word of the frame at hand. */
static __always_inline __u64 frame_word(struct thread *t, __u32 field)
{
	__u64 off = INDEX(t->frame_at + (field & ~7), WINDOW);

	return *(__u64 *)(t->window + off) >> (8 * (field & 7));
}

/* The frame that a copied thread state runs, 0 for none. */
static __always_inline int tstate_frame(struct thread *t, __u64 *frame)
{
	*frame = tstate_word(t, python.thread_frame);
	if (python.frame_indirect >= 0 && *frame)
		return read_user(frame, 8, *frame + python.frame_indirect);
	return 0;
}

/* Looks for this thread among those of an interpreter. A thread may have a
 * state in each of several interpreters: one that runs a frame is preferred. */
static long thread_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u64 frame = 0;

	if (!t->walk_thread)
		return 1;
	if (read_user(t->tstate_copy, THREAD_READ, t->walk_thread)) {
		t->python_status = PYTHON_FAULT;
		return 1;
	}
	if (tstate_word(t, python.thread_id) == bpf_get_current_task_btf()->thread.fsbase) {
		if (!t->found)
			t->found = t->walk_thread;
		if (!tstate_frame(t, &frame) && frame) {
			t->found = t->walk_thread;
			t->found_running = 1;
		}
		return 1;
	}
	t->walk_thread = tstate_word(t, python.thread_next);
	return 0;
}

static long interpreter_step(__u32 i, void *data)
{
	struct loop *loop = data;
	struct thread *t = loop->t;

	if (!t->walk_interp)
		return 1;
	if (read_user(&t->walk_thread, 8, t->walk_interp + python.interp_threads)) {
		t->python_status = PYTHON_FAULT;
		return 1;
	}
	bpf_loop(MAX_PYTHON_THREADS, thread_step, loop, 0);
	if (t->found_running || t->python_status == PYTHON_FAULT)
		return 1;
	if (read_user(&t->walk_interp, 8, t->walk_interp + python.interp_next)) {
		t->python_status = PYTHON_FAULT;
		return 1;
	}
	return 0;
}

/* Is the cached state still this thread's? Memory of a deleted one may keep
 * its old contents, so its neighbour in the list has to point to it too. */
static __always_inline int thread_still_there(struct thread *t)
{
	__u64 prev, link, where;

	if (read_user(t->tstate_copy, THREAD_READ, t->tstate))
		return 0;
	if (tstate_word(t, python.thread_id) != bpf_get_current_task_btf()->thread.fsbase)
		return 0;
	prev = tstate_word(t, python.thread_prev);
	where = prev ? prev + python.thread_next
		     : tstate_word(t, python.thread_interp) + python.interp_threads;
	return !read_user(&link, 8, where) && link == t->tstate;
}

/* Has a thread state been made since this thread was found to have none? New
 * ones go to the head of the list and get a number of their own. */
static __always_inline int threads_unchanged(struct thread *t)
{
	__u64 interp, head = 0, id = 0;

	if (read_user(&interp, 8, python.interpreters) || !interp)
		return 0;
	if (read_user(&head, 8, interp + python.interp_threads))
		return 0;
	if (head && read_user(&id, 8, head + python.thread_unique_id))
		return 0;
	if (t->threads_head == head && t->threads_head_id == id && head)
		return 1;
	t->threads_head = head;
	t->threads_head_id = id;
	return 0;
}

/* Is there more than one interpreter? New ones go to the head of the list. */
static __always_inline int interpreters_many(void)
{
	__u64 interp, next = 0;

	return !read_user(&interp, 8, python.interpreters) && interp &&
	       !read_user(&next, 8, interp + python.interp_next) && next;
}

/* Walks the lists of all interpreters. */
static __always_inline int thread_walk(struct thread *t)
{
	struct loop loop = { .t = t };

	t->tstate = t->found = t->found_running = 0;
	if (read_user(&t->walk_interp, 8, python.interpreters)) {
		t->python_status = PYTHON_FAULT;
		return -1;
	}
	bpf_loop(MAX_INTERPRETERS, interpreter_step, &loop, 0);
	t->tstate = t->found;
	if (!t->found) {
		if (t->python_status != PYTHON_FAULT)
			t->python_status = PYTHON_NO_THREAD;
		return -1;
	}
	if (read_user(t->tstate_copy, THREAD_READ, t->tstate)) {
		t->python_status = PYTHON_FAULT;
		return -1;
	}
	return 0;
}

/* Is the copied state in the interpreter that was made last? Else the thread may
 * have gone on from it into a newer one, where it runs now. */
static __always_inline int in_newest_interpreter(struct thread *t)
{
	__u64 interp;

	return !read_user(&interp, 8, python.interpreters) &&
	       interp == tstate_word(t, python.thread_interp);
}

/* Finds the thread's state and the frame it runs. */
static __always_inline int thread_find(struct thread *t, __u64 *frame)
{
	int walked = 0;

	if (!t->tstate && threads_unchanged(t)) {
		t->python_status = PYTHON_NO_THREAD;
		return -1;
	}
	if (!t->tstate || !thread_still_there(t) || !in_newest_interpreter(t)) {
		if (thread_walk(t))
			return -1;
		walked = 1;
	}
	if (tstate_frame(t, frame)) {
		t->python_status = PYTHON_FAULT;
		return -1;
	}
	/* Idle here, but maybe running in another interpreter. */
	if (!*frame && !walked && interpreters_many()) {
		if (thread_walk(t))
			return -1;
		if (tstate_frame(t, frame)) {
			t->python_status = PYTHON_FAULT;
			return -1;
		}
	}
	return 0;
}

/*
 * Brings the frame into the window. Frames lie on a stack that grows upwards,
 * so the window ends with the frame and holds its callers below.
 */
static __always_inline int frame_fill(struct thread *t, __u64 frame)
{
	__u64 end = frame + FRAME_READ, base, n;

	if ((frame & 4095) > 4096 - FRAME_READ || (frame & 7)) {
		/* Across a page: only as far as the layout needs. */
		n = python.frame_size;
		if (n > FRAME_READ)
			n = FRAME_READ;
		t->window_base = t->window_end = 0;
		t->frame_at = 0;
		return read_user(t->window, n, frame);
	}
	if (frame < t->window_base || end > t->window_end) {
		base = frame & ~4095ULL;
		if (end - base > WINDOW)
			base = end - WINDOW;
		n = end - base;
		t->window_base = t->window_end = 0;
		asm volatile("" : "+r"(n));
		if (n > WINDOW || read_user(t->window, n, base))
			return -1;
		t->window_base = base;
		t->window_end = end;
	}
	t->frame_at = frame - t->window_base;
	return 0;
}

/*
 * Names a code object by its address and the objects it points to, since the
 * address may be another code object's later; 0 if it cannot be read.
 *
 * A frame that was in the thread's last captured stack, with the same code, is
 * taken to run the same code object still. For that to be wrong the frame must
 * have returned, the code been freed and another one been made in its place and
 * called from there, all without a single malloc: compiling and importing
 * allocate, and are captured. Where only samples are captured nothing is taken.
 */
static __always_inline __u64 code_name(struct thread *t, __u64 frame, __u64 code)
{
	struct named_frame *f = &t->named[INDEX(frame >> 4, NAMED_FRAMES)];
	__u64 ident[IDENT_WORDS], key;

	if (f->frame == frame && f->code == code && f->capture == t->capture - 1 &&
	    sample_bytes <= 1) {
		f->capture = t->capture;
		return f->key;
	}
	if (read_user(ident, sizeof(ident), code + python.code_ident))
		return 0;
	key = mix(mix(mix(mix(code, ident[0]), ident[1]), ident[2]), ident[3]) ?: 1;
	f->frame = frame;
	f->code = code;
	f->key = key;
	f->capture = t->capture;
	return key;
}

static long frame_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u64 n = t->python_count, code, instr;
	struct python_frame f = {};

	if (!t->python_frame_ptr) {
		t->python_status = PYTHON_DONE;
		return 1;
	}
	if (n >= MAX_PYTHON) {
		t->python_status = PYTHON_TOO_DEEP;
		return 1;
	}
	if (frame_fill(t, t->python_frame_ptr)) {
		t->python_status = PYTHON_FAULT;
		return 1;
	}
	code = frame_word(t, python.frame_code) & python.code_mask;
	instr = frame_word(t, python.frame_instr);
	f.flags = FRAME_ENTRY;
	if (python.frame_owner >= 0) {
		f.owner = (__u8)frame_word(t, python.frame_owner);
		f.flags = f.owner >= python.entry_value ? FRAME_ENTRY : 0;
	}
	if (!(python.shim && f.flags)) {
		f.code = code_name(t, t->python_frame_ptr, code);
		if (!f.code) {
			t->python_status = PYTHON_FAULT;
			return 1;
		}
		f.position = python.instr_is_index ? (__s32)instr
						   : (__s32)(instr - code - python.code_adaptive);
	}
	n = INDEX(n, MAX_PYTHON);
	t->record.python[n] = f;
	t->python_code[n] = code;
	t->hash = mix(mix(t->hash, f.code), (__u32)f.position | (__u64)f.owner << 32);
	t->python_count = n + 1;
	t->python_frame_ptr = frame_word(t, python.frame_prev);
	return 0;
}

/* Walks the thread's Python frames and adds them to the hash. */
__noinline int python_walk(struct thread *t)
{
	struct loop loop = { .t = t };
	__u64 frame = 0;

	if (!t)
		return 0;
	t->python_count = 0;
	t->capture++;
	t->python_status = PYTHON_OFF;
	if (!python.enabled)
		return 0;
	t->window_base = t->window_end = 0;
	if (!thread_find(t, &frame)) {
		t->python_frame_ptr = frame;
		bpf_loop(MAX_PYTHON + 1, frame_step, &loop, 0);
	}
	count(COUNT_PYTHON + (t->python_status & 7));
	return 0;
}

#endif
