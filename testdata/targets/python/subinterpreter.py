# SPDX-License-Identifier: Apache-2.0
"""Allocates in a second interpreter on the thread that runs the first.

Prints READY and waits for a line; keeps 50 blocks of 30,011 bytes in the second
interpreter ("in_second") and 40 of 50,021 in the first ("in_first"), by turns;
prints DONE and waits.
"""

import sys

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

SECOND = """
import sys
kept = getattr(sys, "kept", None)
if kept is None:
    kept = sys.kept = []


def in_second():
    kept.append(bytearray(30010))


in_second()
"""
kept = []


def in_first():
    kept.append(bytearray(50020))


def run(interpreter):
    if hasattr(interpreters, "run_string"):
        interpreters.run_string(interpreter, SECOND)
    else:
        interpreters.exec(interpreter, SECOND)


def main():
    second = interpreters.create()
    print("READY", flush=True)
    sys.stdin.readline()
    for i in range(50):
        if i < 40:
            in_first()
        run(second)
    print("DONE", flush=True)
    sys.stdin.readline()


main()
