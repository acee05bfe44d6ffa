# SPDX-License-Identifier: Apache-2.0
"""Situations of comprehensions, generators and coroutines."""

import asyncio
import contextlib

from harness import checkpoint, mark


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
