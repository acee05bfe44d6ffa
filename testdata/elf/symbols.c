// SPDX-License-Identifier: Apache-2.0

// A library with one symbol of each kind that the symbol readers tell apart.

int an_object[4] = {1, 2, 3, 4};
__thread int a_thread_variable = 7;

int exported(int x) { return x * 3 + an_object[x & 3]; }

// Several names for one function: "aliased" is the one to report.
int __aliased(int x) { return x * 5 + 1; }
int aliased(int x) __attribute__((alias("__aliased")));
int weak_aliased(int x) __attribute__((weak, alias("__aliased")));

__attribute__((noinline, noclone)) static int hidden_static(int x) {
	return exported(x) ^ a_thread_variable;
}

static int chosen(int x) { return x + 100; }
static int (*resolve(void))(int) { return chosen; }
int indirect(int x) __attribute__((ifunc("resolve")));

// GCC moves the path to a cold function into partially_cold.cold.
__attribute__((cold, noinline)) void complain(int x) { an_object[x & 3] = x; }

int partially_cold(int x) {
	if (x < 0) {
		complain(x + 1);
		complain(x * 77);
		complain(hidden_static(x));
		return 5 * x;
	}
	return hidden_static(x) + indirect(x);
}

#ifdef __x86_64__
// Functions without a size, one with unwind information and one without, as
// assembly authors leave them.
__asm__(".pushsection .text.sizeless, \"ax\", @progbits\n"
	".globl sizeless\n"
	".type sizeless, @function\n"
	"sizeless:\n"
	".cfi_startproc\n"
	"	nop; nop; nop; nop\n"
	"	ret\n"
	".cfi_endproc\n"
	".globl typeless\n"
	"typeless:\n"
	"	nop; nop; nop; nop\n"
	"	ret\n"
	"	.zero 64, 0x90\n"
	".popsection\n");
#endif
