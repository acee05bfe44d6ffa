# SPDX-License-Identifier: Apache-2.0

# Two tracing probes as <sys/sdt.h> writes them, one with a semaphore, each
# with operands of its own, and a note of another owner between them.

	.macro probe provider, name, semaphore, args:vararg
990:	nop
	.pushsection .note.stapsdt, "?", "note"
	.balign 4
	.4byte 992f-991f, 994f-993f, 3
991:	.asciz "stapsdt"
992:	.balign 4
993:	.8byte 990b
	.8byte _.stapsdt.base
	.8byte \semaphore
	.asciz "\provider"
	.asciz "\name"
	.asciz "\args"
994:	.balign 4
	.popsection
	.endm

	.section .stapsdt.base, "aG", "progbits", .stapsdt.base, comdat
	.weak _.stapsdt.base
	.hidden _.stapsdt.base
_.stapsdt.base:
	.space 1
	.size _.stapsdt.base, 1

	.section .probes, "aw", "progbits"
	.globl demo_malloc_semaphore
	.hidden demo_malloc_semaphore
	.type demo_malloc_semaphore, @object
	.size demo_malloc_semaphore, 2
demo_malloc_semaphore:
	.2byte 0

	.text
	.globl probed
	.type probed, @function
probed:
	probe demo, malloc, demo_malloc_semaphore, -8@%rdi -1@%dl -8@56(%rsp)
	probe demo, malloc, demo_malloc_semaphore, -8@%rax 4@$3
	probe demo, free, 0, 8@%rdi
	ret
	.size probed, . - probed

	.pushsection .note.stapsdt, "", "note"
	.4byte 6, 4, 3
	.asciz "other"
	.balign 4
	.4byte 0
	.popsection

	.section .note.GNU-stack, "", "progbits"
