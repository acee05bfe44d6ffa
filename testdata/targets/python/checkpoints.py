# SPDX-License-Identifier: Apache-2.0
"""Reaches known Python stacks and says which they are.

    checkpoints.py pause   at each checkpoint waits for a line on stdin
    checkpoints.py run     prints READY and waits for a line; then runs through
                           all checkpoints, prints DONE and waits for another

At each checkpoint it prints a line of JSON,

    {"n": 3, "name": "property", "thread": 140737352, "size": 1000051,
     "stack": [["Property.value", "/path/checkpoints.py", 120], ...]}

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

import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib.abc
import importlib.util
import json
import operator
import os
import re
import signal
import sys
import threading
import types
import weakref

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


# Plain code.


@checkpoint
def plain_call():
    def inner():
        mark()

    def outer():
        inner()

    outer()


@checkpoint
def arguments():
    def variadic(*args, **kwargs):
        mark()

    def defaults(a, b=2, *, c=3):
        variadic(*[a, b], **{"c": c})

    defaults(1, c=4)


@checkpoint
def closure():
    cell = []

    def inner():
        cell.append(0)
        mark()

    inner()


@checkpoint
def lambda_function():
    (lambda: (lambda x: mark())(1))()


@checkpoint
def multi_line_call():
    def inner(*args):
        mark()

    inner(
        1,
        inner_value(2),
        [
            3,
            4,
        ],
    )


def inner_value(x):
    return x


# Classes.


class Plain:
    def __init__(self, call=None):
        self.call = call
        if call is not None:
            call()

    def method(self):
        mark()

    @classmethod
    def class_method(cls):
        cls.static_method()

    @staticmethod
    def static_method():
        mark()

    @property
    def value(self):
        mark()
        return 1

    def __call__(self):
        mark()

    def __add__(self, other):
        mark()
        return self

    def __getitem__(self, key):
        mark()
        return key

    def __len__(self):
        mark()
        return 1

    def __format__(self, spec):
        mark()
        return spec

    def __eq__(self, other):
        mark()
        return True

    def __hash__(self):
        return 1

    def __lt__(self, other):
        mark()
        return False


@checkpoint
def method():
    Plain().method()


@checkpoint
def bound_method_in_variable():
    bound = Plain().method
    bound()


@checkpoint
def class_and_static_method():
    Plain.class_method()


@checkpoint
def property_getter():
    Plain().value


@checkpoint
def init():
    Plain(mark)


@checkpoint
def init_of_subclass():
    class Sub(Plain):
        def __init__(self):
            super().__init__(mark)

    Sub()


@checkpoint
def call_operator():
    Plain()()


@checkpoint
def binary_operator():
    Plain() + 1


@checkpoint
def subscript():
    Plain()[1]


@checkpoint
def length():
    len(Plain())


@checkpoint
def format_in_string():
    f"{Plain():x}"


@checkpoint
def dict_lookup():
    {Plain(): 1}.get(Plain())


@checkpoint
def comparison():
    Plain() < Plain()


@checkpoint
def getattr_fallback():
    class Fallback:
        def __getattr__(self, name):
            mark()

    Fallback().missing


@checkpoint
def getattribute():
    class Everything:
        def __getattribute__(self, name):
            mark()

    Everything().something


@checkpoint
def descriptor():
    class Descriptor:
        def __get__(self, instance, owner):
            mark()

    class Owner:
        attribute = Descriptor()

    Owner().attribute


@checkpoint
def set_name():
    class Descriptor:
        def __set_name__(self, owner, name):
            mark()

    class Owner:
        attribute = Descriptor()


@checkpoint
def metaclass_new():
    class Meta(type):
        def __new__(mcs, name, bases, namespace):
            mark()
            return super().__new__(mcs, name, bases, namespace)

    class Made(metaclass=Meta):
        pass


@checkpoint
def metaclass_call():
    class Meta(type):
        def __call__(cls):
            return super().__call__()

    class Made(metaclass=Meta):
        def __init__(self):
            mark()

    Made()


@checkpoint
def new():
    class Made:
        def __new__(cls):
            mark()
            return super().__new__(cls)

    Made()


@checkpoint
def init_subclass():
    class Base:
        def __init_subclass__(cls):
            mark()

    class Sub(Base):
        pass


@checkpoint
def class_body():
    class Body:
        x = 1
        mark()


# Comprehensions, generators, coroutines.


@checkpoint
def list_comprehension():
    [mark() for _ in range(1)]


@checkpoint
def nested_comprehension():
    {x: [mark() for y in [x]] for x in range(1)}


@checkpoint
def generator_expression():
    sum(mark() is None for _ in range(1))


@checkpoint
def generator_in_for():
    def numbers():
        mark()
        yield 1

    for _ in numbers():
        pass


@checkpoint
def generator_in_for_second_step():
    def numbers():
        yield 1
        mark()
        yield 2

    for _ in numbers():
        pass


@checkpoint
def generator_by_next():
    def numbers():
        yield 1
        mark()
        yield 2

    g = numbers()
    next(g)
    next(g)


@checkpoint
def generator_send():
    def echo():
        x = yield
        mark()
        yield x

    g = echo()
    g.send(None)
    g.send(1)


@checkpoint
def generator_throw():
    def guarded():
        try:
            yield
        except KeyError:
            mark()
            yield

    g = guarded()
    next(g)
    g.throw(KeyError("x"))


@checkpoint
def generator_close():
    def guarded():
        try:
            yield
        finally:
            mark()

    g = guarded()
    next(g)
    g.close()


@checkpoint
def yield_from():
    def leaf():
        yield 1
        mark()
        yield 2

    def middle():
        yield from leaf()

    def outer():
        yield from middle()

    for _ in outer():
        pass


@checkpoint
def generator_consumed_in_c():
    def numbers():
        yield 1
        mark()

    list(map(str, numbers()))


@checkpoint
def coroutine():
    async def leaf():
        mark()

    async def middle():
        await leaf()

    async def outer():
        await middle()

    with contextlib.suppress(StopIteration):
        outer().send(None)


@checkpoint
def coroutine_after_switch():
    async def leaf():
        await asyncio.sleep(0)
        mark()

    async def outer():
        await leaf()

    asyncio.run(outer())


@checkpoint
def asyncio_tasks():
    async def work(x):
        await asyncio.sleep(0)
        if x == 1:
            mark()

    async def outer():
        await asyncio.gather(*[work(x) for x in range(3)])

    asyncio.run(outer())


@checkpoint
def async_generator():
    async def numbers():
        yield 1
        await asyncio.sleep(0)
        mark()
        yield 2

    async def outer():
        async for _ in numbers():
            pass

    asyncio.run(outer())


@checkpoint
def async_with():
    class Manager:
        async def __aenter__(self):
            await asyncio.sleep(0)

        async def __aexit__(self, *error):
            mark()

    async def outer():
        async with Manager():
            pass

    asyncio.run(outer())


# Called from C.


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


# Ends of lives.


@checkpoint
def finalizer():
    class Finalized:
        def __del__(self):
            mark()

    Finalized()


@checkpoint
def finalizer_at_return():
    class Finalized:
        def __del__(self):
            mark()

    def owner():
        local = Finalized()

    owner()


@checkpoint
def finalizer_in_gc():
    class Finalized:
        def __del__(self):
            mark()

    a = Finalized()
    a.self = a
    del a
    gc.collect()


@checkpoint
def weakref_callback():
    a = Plain()
    r = weakref.ref(a, lambda r: mark())
    del a


# Exceptions and contexts.


@checkpoint
def except_block():
    def fail():
        raise ValueError

    try:
        fail()
    except ValueError:
        mark()


@checkpoint
def finally_block():
    with contextlib.suppress(ValueError):
        try:
            raise ValueError
        finally:
            mark()


@checkpoint
def exception_init():
    class Custom(Exception):
        def __init__(self):
            mark()

    with contextlib.suppress(Custom):
        raise Custom


@checkpoint
def with_enter():
    class Manager:
        def __enter__(self):
            mark()

        def __exit__(self, *error):
            pass

    with Manager():
        pass


@checkpoint
def with_exit_after_error():
    class Manager:
        def __enter__(self):
            pass

        def __exit__(self, *error):
            mark()
            return True

    with Manager():
        raise KeyError


@checkpoint
def contextmanager():
    @contextlib.contextmanager
    def manager():
        yield
        mark()

    with manager():
        pass


@checkpoint
def decorator():
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    @decorate
    @decorate
    def decorated(x):
        mark()

    decorated(1)


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


# Recursion.


@checkpoint
def deep_recursion():
    def down(n):
        if n == 0:
            mark()
        else:
            down(n - 1)

    down(230)


@checkpoint
def deep_recursion_through_c():
    def down(n):
        if n == 0:
            mark()
        else:
            list(map(down, [n - 1]))

    down(40)


# Code made at run time.


@checkpoint
def exec_code():
    exec("def f():\n    mark()\n\n\nf()", {"mark": mark})


@checkpoint
def eval_code():
    eval("[mark()]")


class MemoryLoader(importlib.abc.SourceLoader):
    def get_filename(self, name):
        return "/nowhere/" + name + ".py"

    def get_data(self, path):
        return b"import __main__\n\n\ndef run():\n    __main__.mark()\n\n\nrun()\n"


class MemoryFinder:
    def find_spec(self, name, path=None, target=None):
        if name == "checkpoint_module":
            return importlib.util.spec_from_loader(name, MemoryLoader())
        return None


@checkpoint
def import_module():
    finder = MemoryFinder()
    sys.meta_path.insert(0, finder)
    try:
        import checkpoint_module
    finally:
        sys.meta_path.remove(finder)
        del sys.modules["checkpoint_module"]


def compiled(source, filename):
    namespace = {"mark": mark}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["f"]


far_function = compiled("\n" * 70_000 + "def f():\n\n\n    mark()\n", "/nowhere/far.py")

# A table of about 20 KB, so that a record of 4 KiB lacks the end.
long_function = compiled(
    "def f(x=0):\n" + "".join("    x = x + %d * x\n" % i for i in range(6_000)) + "    mark()\n",
    "/nowhere/long.py",
)

# Lines that go backwards and far forwards.
jumping_function = compiled(
    "def f(x=0):\n    g(\n" + "\n" * 300 + "        mark(),\n" + "\n" * 300 + "    )\n\n\ndef g(x):\n    pass\n",
    "/nowhere/jumping.py",
)


@checkpoint
def far_line():
    far_function()


@checkpoint
def long_code():
    long_function()


@checkpoint
def jumping_lines():
    jumping_function()


@checkpoint
def latin1_name():
    def naïve_café():
        mark()

    naïve_café()


@checkpoint
def two_byte_name():
    def функция():
        mark()

    функция()


@checkpoint
def four_byte_name():
    def 𠀀𠀁():
        mark()

    𠀀𠀁()


@checkpoint
def unicode_file_names():
    compiled("def f():\n    mark()\n", "/nowhere/é.py")()


@checkpoint
def four_byte_file_names():
    compiled("def f():\n    mark()\n", "/nowhere/漢字/😀.py")()


class Name(str):
    """Its instances keep their text apart from the object."""


@checkpoint
def name_of_a_str_subclass():
    def function():
        mark()

    changed = {"co_name": Name("näme")}
    if hasattr(function.__code__, "co_qualname"):
        changed["co_qualname"] = Name("qualified.näme")
    types.FunctionType(function.__code__.replace(**changed), globals())()


@checkpoint
def long_name():
    name = "n" * 1500
    compiled("def %s():\n    mark()\n\n\nf = %s\n" % (name, name), "/nowhere/" + "d" * 900 + "/f.py")()


if __name__ == "__main__":
    main()
