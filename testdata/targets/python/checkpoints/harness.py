# SPDX-License-Identifier: Apache-2.0
"""What goes through the situations and says which stack each has."""

import ctypes
import json
import os
import sys
import threading

BASE, STEP = 1_000_003, 16
WARMUP = 20

MODE = sys.argv[1]

libc = ctypes.CDLL(None, use_errno=False)
libc.malloc.argtypes = [ctypes.c_size_t]
libc.malloc.restype = ctypes.c_void_p

checkpoints = []  # (name, function)
kept = []  # addresses of what mark() allocated
current = None  # (number, name) of the checkpoint that counts, if one does


def mark():
    if current is None:
        return
    stack, frame = [], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        stack.append([str(name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    n, name = current
    size = BASE + STEP * n
    message = dict(n=n, name=name, thread=threading.get_ident(), size=size, stack=stack)
    line = (json.dumps(message) + "\n").encode()
    # Called from here, so that mark() is at the leaf once the line can be read.
    os.write(1, line)
    if MODE == "pause":
        os.read(0, 1024)
    kept.append(libc.malloc(size))


def checkpoint(function):
    checkpoints.append((function.__name__, function))
    return function


def main():
    global current
    if MODE == "run":
        os.write(1, b"READY\n")
        os.read(0, 1024)
    for n, (name, function) in enumerate(checkpoints):
        for _ in range(WARMUP):
            function()
        current = n, name
        before = len(kept)
        function()
        current = None
        if len(kept) != before + 1:
            sys.exit("checkpoint %s was reached %d times" % (name, len(kept) - before))
    os.write(1, b"DONE\n")
    if MODE == "run":
        os.read(0, 1024)
