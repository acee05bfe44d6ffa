# SPDX-License-Identifier: Apache-2.0
"""Situations of functions that C calls, and of threads."""

import ctypes
import functools
import operator
import re
import signal
import threading

from classes import Plain
from harness import checkpoint, libc, mark


@checkpoint
def sort_key():
    sorted([1], key=lambda x: mark() or x)


@checkpoint
def sort_comparison():
    sorted([Plain(), Plain()])


@checkpoint
def map_function():
    list(map(lambda x: mark(), [1]))


@checkpoint
def reduce_function():
    functools.reduce(lambda a, b: mark(), [1, 2])


@checkpoint
def partial():
    functools.partial(Plain, mark)()


@checkpoint
def cached():
    @functools.lru_cache(None)
    def compute(x):
        mark()

    compute(1)


@checkpoint
def iter_sentinel():
    for _ in iter(lambda: mark(), None):
        pass


@checkpoint
def regex_callback():
    re.sub("x", lambda m: mark() or "y", "x")


@checkpoint
def nested_callbacks():
    def inner(x):
        return sorted([x], key=lambda y: mark() or y)

    list(map(lambda x: functools.reduce(lambda a, b: inner(b), [x, x]), [1]))


callback_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@checkpoint
def ctypes_callback():
    def compare(a, b):
        if not reached:
            reached.append(1)
            mark()
        return 0

    reached = []
    numbers = (ctypes.c_int * 2)(2, 1)
    libc.qsort(numbers, ctypes.c_size_t(2), ctypes.c_size_t(4), callback_type(compare))


@checkpoint
def operator_methodcaller():
    operator.methodcaller("method")(Plain())


@checkpoint
def signal_handler():
    old = signal.signal(signal.SIGUSR1, lambda number, frame: mark())
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, old)


# Threads.


@checkpoint
def thread():
    t = threading.Thread(target=lambda: mark())
    t.start()
    t.join()


@checkpoint
def thread_of_c():
    start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

    def body(argument):
        Plain().method()
        return None

    body = start(body)
    thread_id = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread_id), None, body, None)
    libc.pthread_join(thread_id, None)
