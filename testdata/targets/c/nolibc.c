// SPDX-License-Identifier: Apache-2.0

/*
 * nolibc: a process without a C library, so without an allocator. It says READY
 * and lives until its stdin ends.
 *
 *   gcc -nostdlib -static -fno-stack-protector nolibc.c
 */
#if defined(__x86_64__)
enum { sys_read = 0, sys_write = 1, sys_exit = 60 };

static long call3(long number, long a, long b, long c)
{
	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return number;
}
#elif defined(__aarch64__)
enum { sys_read = 63, sys_write = 64, sys_exit = 93 };

static long call3(long number, long a, long b, long c)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
}
#endif

void _start(void)
{
	char c;

	call3(sys_write, 1, (long)"READY\n", 6);
	while (call3(sys_read, 0, (long)&c, 1) > 0)
		;
	call3(sys_exit, 0, 0, 0);
	__builtin_unreachable();
}
