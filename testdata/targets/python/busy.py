# SPDX-License-Identifier: Apache-2.0
"""Changes everything that a reader from outside looks at, as fast as it can:
threads start and end, frames and code objects come and go. Prints READY once it
is at it, and ends when stdin does."""

import os
import threading


def recurse(n):
    return n and recurse(n - 1) + sum(x for x in range(3))


def compile_and_run():
    namespace = {}
    exec("def f(x):\n    return [x for x in range(3)]\nf(1)", namespace)


def work():
    while True:
        thread = threading.Thread(target=compile_and_run)
        thread.start()
        recurse(20)
        thread.join()


for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
os.write(1, b"READY\n")
os.read(0, 1)
os._exit(0)
