# SPDX-License-Identifier: Apache-2.0
"""Situations of plain functions, exceptions, contexts and recursion."""

import contextlib
import functools

from harness import checkpoint, mark


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
