# SPDX-License-Identifier: Apache-2.0
"""Situations of classes and of the ends of their instances."""

import gc
import weakref

from harness import checkpoint, mark


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
