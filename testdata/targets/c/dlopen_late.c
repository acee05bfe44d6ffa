// SPDX-License-Identifier: Apache-2.0

/*
 * dlopen_late: loads a library after READY and allocates from it at once.
 *
 *   dlopen_late LIBRARY [ROUNDS]     (100)
 *
 * The library is latelib.c's, any file with its sites. In each round each of
 * the 50 sites allocates twice and one of the two is freed, in the sites' order
 * and without a pause after dlopen, so the first allocations are made while a
 * tracer learns of the library. It says, after READY and a line,
 *
 *   SITES [{"site":"late_00","function":"malloc","objects":…,"bytes":…,"allocs":…,"alloc_bytes":…}, …]
 *
 * and DONE.
 */
#include <dlfcn.h>

#include "talk.h"

#define LATE_SITES 50

int main(int argc, char **argv)
{
	void *(*const *sites)(void);
	long rounds = argc > 2 ? atol(argv[2]) : 100;
	long i, round;
	void *library;

	CHECK(argc > 1);
	ready();
	library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		say("FAILED %s\n", dlerror());
	CHECK(library);
	sites = (void *(*const *)(void))dlsym(library, "late_sites");
	CHECK(sites);
	for (round = 0; round < rounds; round++)
		for (i = 0; i < LATE_SITES; i++) {
			void *kept = sites[i](), *freed = sites[i]();

			CHECK(kept && freed);
			free(freed);
		}
	say("SITES [");
	for (i = 0; i < LATE_SITES; i++)
		say("%s{\"site\":\"late_%02ld\",\"function\":\"malloc\",\"objects\":%ld,\"bytes\":%"
		    "ld,"
		    "\"allocs\":%ld,\"alloc_bytes\":%ld}",
		    i ? "," : "", i, rounds, rounds * (1000 + 8 * i), 2 * rounds,
		    2 * rounds * (1000 + 8 * i));
	say("]\n");
	done();
	return 0;
}
