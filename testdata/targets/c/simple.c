// SPDX-License-Identifier: Apache-2.0

/*
 * simple: allocates 100 times from one site and frees half, in whatever way it
 * was built: static, stripped, for 32 bits, with musl. The protocol is model.h's.
 */
#define SITES X(only_site, "malloc", 1009)

#define MODEL_DEFINE
#include "model.h"

SITE void only_site(bool keep)
{
	void *p = malloc(SIZE(only_site));
	struct ref r = allocated(ID_only_site, p, SIZE(only_site));

	if (keep)
		return;
	released(&r);
	free(p);
}

int main(void)
{
	int i;

	attach();
	for (i = 0; i < 100; i++)
		only_site(i % 2);
	report();
	return 0;
}
