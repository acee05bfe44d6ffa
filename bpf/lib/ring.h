/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ring buffer to user space, and when its reader is woken. */
#ifndef UNFREED_RING_H
#define UNFREED_RING_H

#include "wire.h"
#include <bpf/bpf_helpers.h>

#define WAKE_AT (256 << 10) /* bytes queued before the reader is woken */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

/* A wake-up at every record would double the cost of a captured call. */
static __always_inline __u64 wake(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > WAKE_AT ? BPF_RB_FORCE_WAKEUP
								       : BPF_RB_NO_WAKEUP;
}

#endif
