// SPDX-License-Identifier: Apache-2.0

/*
 * vforker: starts children by vfork and by posix_spawn between allocations of
 * its own. A vforked child borrows the parent's memory until it executes: what
 * it allocates there ("in_vfork_child") stays allocated in the parent, although
 * another process made the call, and what it frees there is freed. The protocol
 * is model.h's; 50 rounds.
 */
#define SITES                       \
	X(in_parent, "malloc", 131) \
	X(in_vfork_child, "malloc", 257)

#define MODEL_DEFINE
#define _GNU_SOURCE
#include "model.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

SITE struct ref in_parent(void)
{
	void *p = malloc(SIZE(in_parent));

	KEEP(p);
	return allocated(ID_in_parent, p, SIZE(in_parent));
}

SITE struct ref in_vfork_child(void)
{
	void *p = malloc(SIZE(in_vfork_child));

	KEEP(p);
	return allocated(ID_in_vfork_child, p, SIZE(in_vfork_child));
}

SITE void drop(struct ref *r)
{
	void *p = r->p;

	released(r);
	free(p);
}

static void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
	static char *const argv[] = { "true", NULL };
	struct ref dropped;
	pid_t pid;
	int i;

	attach();
	for (i = 0; i < 50; i++) {
		in_parent(); /* kept */
		dropped = in_parent();
		pid = vfork();
		CHECK(pid >= 0);
		if (pid == 0) {
			in_vfork_child(); /* kept, in the parent */
			drop(&dropped);
			execve("/bin/true", argv, environ);
			_exit(1);
		}
		wait_for(pid);
		CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0);
		wait_for(pid);
	}
	report();
	return 0;
}
