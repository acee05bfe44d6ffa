/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names stacks and sends the ones that user space has not seen.
 *
 * A site is a stack and the function called from it; its name is a 64-bit hash
 * of both. A stack is marked as sent only when it and all the code objects it
 * refers to are in the ring, else the next allocation tries again.
 */
#ifndef UNFREED_STACK_H
#define UNFREED_STACK_H

#include "python.h"
#include "raw.h"
#include "ring.h"

/* All sites; user space reads its counters from here. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, __u64);
	__type(value, struct site);
} sites SEC(".maps");

/* Code objects that have been sent, by key. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, __u64);
	__type(value, __u64);
} codes SEC(".maps");

const volatile __u32 native_on = 1;

/* Copies an object of header bytes whose length word counts units behind it. */
static __always_inline __u32 copy_object(__u8 *dst, __u32 max, __u64 addr, __u32 header,
					 __u32 length_at, __u32 shift)
{
	__u64 length, n;

	if (!addr || read_user(&length, 8, addr + length_at))
		return 0;
	if (length > max)
		length = max;
	n = (length << shift) + header;
	if (n > max)
		n = max;
	/* The verifier wants the bound on the very register it passes on. */
	asm volatile("" : "+r"(n));
	if (n > max || !n)
		return 0;
	if (read_user(dst, n, addr))
		return 0;
	return n;
}

/* A str's characters take 1, 2 or 4 bytes. One that cannot be read in full at
 * 4 bytes a character, for it lies at the end of a mapping, is read as what
 * most are: ASCII behind the shortest header. */
static __always_inline __u32 copy_string(__u8 *dst, __u32 max, __u64 addr)
{
	__u32 n = copy_object(dst, max, addr, python.unicode_header, python.unicode_length, 2);

	return n
		       ?: copy_object(dst, max, addr, python.unicode_min_header,
				      python.unicode_length, 0);
}

static __always_inline __u64 ident_word(__u64 *w, __u32 i)
{
	return i == 0 ? w[0] : i == 1 ? w[1] : i == 2 ? w[2] : w[3];
}

static long code_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u64 key, code, one = 1;
	struct code_record *r;
	__u64 n = i;

	if (n >= t->python_count)
		return 1;
	n = INDEX(n, MAX_PYTHON);
	key = t->record.python[n].code;
	if (!key || bpf_map_lookup_elem(&codes, &key))
		return 0;
	code = t->python_code[n];
	r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);
	if (!r) {
		count(COUNT_CODE_NOT_SENT);
		t->codes_unsent = 1;
		return 1;
	}
	r->type = RECORD_CODE;
	r->key = key;
	r->address = code;
	r->first_line = 0;
	r->first_traceable = 0;
	r->filename_len = r->name_len = r->linetable_len = 0;
	if (read_user(r->ident, sizeof(r->ident), code + python.code_ident) ||
	    read_user(&r->first_line, 4, code + python.code_first_line) ||
	    (python.code_first_traceable &&
	     read_user(&r->first_traceable, 4, code + python.code_first_traceable))) {
		count(COUNT_CODE_FAULT);
	} else {
		r->filename_len = copy_string(r->filename, CODE_FILENAME_MAX,
					      ident_word(r->ident, python.ident_filename));
		r->name_len = copy_string(r->name, CODE_NAME_MAX,
					  ident_word(r->ident, python.ident_name));
		r->linetable_len = copy_object(r->linetable, CODE_LINETABLE_MAX,
					       ident_word(r->ident, python.ident_linetable),
					       python.bytes_header, python.bytes_length, 0);
		if (!r->filename_len || !r->name_len || !r->linetable_len)
			count(COUNT_CODE_FAULT);
	}
	bpf_ringbuf_submit(r, wake());
	if (bpf_map_update_elem(&codes, &key, &one, BPF_ANY))
		count(COUNT_SEEN_FULL);
	return 0;
}

static long copy_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u32 n = t->native_count;

	if (i >= n)
		return 1;
	t->record.native[INDEX(i, MAX_NATIVE)] = t->last.ip[INDEX(MAX_NATIVE - n + i, MAX_NATIVE)];
	return 0;
}

/* The Python frames follow the native ones at once, wherever those end. */
static long pack_step(__u32 i, void *data)
{
	struct thread *t = ((struct loop *)data)->t;
	__u32 n = t->native_count;
	__u64 at;
	__u64 *w = (__u64 *)t->record.native;
	__u64 a, b;

	if (i >= t->python_count)
		return 1;
	__builtin_memcpy(&a, &t->record.python[INDEX(i, MAX_PYTHON)], 8);
	__builtin_memcpy(&b, (__u8 *)&t->record.python[INDEX(i, MAX_PYTHON)] + 8, 8);
	at = INDEX(n + 2 * i, 1024);
	if (at > MAX_NATIVE + 2 * MAX_PYTHON - 2)
		return 1;
	w[at] = a;
	w[at + 1] = b;
	return 0;
}

/* Sends the stack, and before it the code objects that have not been sent. */
__noinline int stack_send(struct thread *t, __u64 site, __u32 function, __u64 size)
{
	struct loop loop = { .t = t };
	struct stack_record *h;
	__u64 len;

	if (!t)
		return -1;
	h = &t->record.header;
	t->codes_unsent = 0;
	if (t->python_count)
		bpf_loop(MAX_PYTHON, code_step, &loop, 0);
	if (t->codes_unsent)
		return -1;
	h->type = RECORD_STACK;
	h->function = function;
	h->site = site;
	h->native_count = t->native_count;
	h->python_count = t->python_count;
	h->native_status = t->native_status;
	h->python_status = t->python_status;
	h->maps_generation = t->generation;
	h->tid = (__u32)bpf_get_current_pid_tgid();
	h->pad = 0;
	h->size = size;
	bpf_loop(MAX_NATIVE, copy_step, &loop, 0);
	if (t->native_count < MAX_NATIVE)
		bpf_loop(MAX_PYTHON, pack_step, &loop, 0);
	len = sizeof(*h) + 8 * t->native_count + sizeof(struct python_frame) * t->python_count;
	len = INDEX(len, 8192);
	if (len > sizeof(t->record))
		len = sizeof(t->record);
	if (bpf_ringbuf_output(&events, &t->record, len, wake())) {
		count(COUNT_STACK_NOT_SENT);
		return -1;
	}
	return 0;
}

/* An address outside all known mappings: a library has been loaded. */
static __always_inline void unknown_pc_send(struct thread *t)
{
	struct pc_record r = { .type = RECORD_UNKNOWN_PC };

	r.pc = t->last.ip[LAST];
	if (bpf_ringbuf_output(&events, &r, sizeof(r), BPF_RB_FORCE_WAKEUP))
		count(COUNT_EVENT_LOST);
}

/*
 * Takes the stack of a call that has just returned and gives the name of its
 * site, 0 if it cannot be counted.
 */
static __always_inline __u64 site_take(struct thread *t, struct pt_regs *ctx, __u32 function,
				       __u64 size, struct site **out)
{
	struct site *s, fresh = {};
	__u32 raw = 0;
	__u64 site;

	if (native_on) {
		registers_set(t, ctx);
		unwind(t);
	} else {
		t->native_count = 0;
		t->native_status = UNWIND_OFF;
		t->hash = mix(address_epoch, 1);
	}
	if (t->native_status == UNWIND_NO_MAPPING && raw_on) {
		raw = 1;
		raw_fingerprint(t);
	}
	python_walk(t);
	site = mix(mix(t->hash, t->native_status | (__u64)t->python_status << 8), function) ?: 1;
	s = bpf_map_lookup_elem(&sites, &site);
	if (!s) {
		bpf_map_update_elem(&sites, &site, &fresh, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&sites, &site);
		if (!s) {
			count(COUNT_SITES_FULL);
			return 0;
		}
		if (t->native_status == UNWIND_NO_MAPPING)
			unknown_pc_send(t);
	}
	if (!s->sent && (!raw || !raw_send(t, site)) && !stack_send(t, site, function, size))
		s->sent = 1;
	*out = s;
	return site;
}

#endif
