# SPDX-License-Identifier: Apache-2.0
"""Prints, for code objects of the standard library, the line table and what
Python reads out of it: [hex, first line, [[start, end, line], ...]] as JSON, a
line each."""

import dis
import importlib.util
import json
import types

MODULES = """
argparse asyncio.tasks collections dataclasses datetime doctest functools
inspect pathlib random shutil subprocess threading typing unittest.mock
zipfile
""".split()


def lines(code):
    if hasattr(code, "co_lines"):
        return code.co_linetable, list(code.co_lines())
    starts = list(dis.findlinestarts(code))
    ends = [start for start, _ in starts[1:]] + [len(code.co_code)]
    return code.co_lnotab, [(start, end, line) for (start, line), end in zip(starts, ends)]


def show(code):
    table, ranges = lines(code)
    print(json.dumps([table.hex(), code.co_firstlineno, ranges]))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            show(constant)


# Expressions over many lines, lines that go back, code without a line.
ODD = """
def f(a, b):
    x = [
        a
        for a in b
        if a
    ]
%s
    try:
        return (a +
            b *
          x)
    finally:
        with a as y, b as z:
            del y
    while True:
        if a: break
        else: continue
class C: x: int = 1
""" % ("\n" * 400)


for name in MODULES:
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        continue
    if spec is not None:
        with open(spec.origin, encoding="utf-8") as f:
            show(compile(f.read(), spec.origin, "exec"))
show(compile(ODD, "odd.py", "exec"))
show(compile("\n" * 70000 + ODD, "far.py", "exec"))
