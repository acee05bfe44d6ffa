# SPDX-License-Identifier: Apache-2.0
"""Reaches known Python stacks and says which they are.

    main.py pause   at each checkpoint waits for a line on stdin
    main.py run     prints READY and waits for a line; then runs through
                    all checkpoints, prints DONE and waits for another

At each checkpoint it prints a line of JSON,

    {"n": 3, "name": "property", "thread": 140737352, "size": 1000051,
     "stack": [["Property.value", "/path/classes.py", 120], ...]}

and then allocates exactly size bytes with libc's malloc, which it keeps: a
tracer knows the checkpoint by the size, and a debugger finds the process
waiting just before.

"stack" is what a traceback shows, leaf first, from the caller of mark() on:
qualname (the bare name before 3.11), file, line (null if it has none). The
frames of mark() and of what it calls are left out of it. So whoever compares
drops frames from the leaf up to and including that of mark(), and then
everything has to be equal.

Each situation is gone through WARMUP times before it counts, so that the
adaptive interpreter of 3.11 and later runs its specialised instructions.
"""

# The situations are numbered in the order of these.
import functions
import classes
import generators
import callbacks
import made

import harness

if __name__ == "__main__":
    harness.main()
