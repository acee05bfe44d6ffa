# SPDX-License-Identifier: Apache-2.0
"""Situations of code that is made at run time, and of unusual code."""

import importlib.abc
import importlib.util
import sys
import types

from harness import checkpoint, mark


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
        return b"import harness\n\n\ndef run():\n    harness.mark()\n\n\nrun()\n"


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
