# SPDX-License-Identifier: Apache-2.0
"""The demo's service: it answers requests, and its memory grows.

It runs for SECONDS under tracemalloc, says what tracemalloc makes of the growth,
stops tracemalloc, says READY and its PID, and serves on until it is killed.

    service.py SECONDS
"""

import collections
import itertools
import os
import sys
import time
import tracemalloc

import tokenizer

try:
    import torch
except ImportError:
    torch = None

REQUESTS = [
    "how do I return an item that I bought last week",
    "where is my order",
    "dónde está mi pedido",
    "please cancel my subscription at the end of the month",
    "wie ändere ich meine Adresse",
    "talk to a person",
]


class Model:
    """Scores a request, with torch where there is one."""

    def __init__(self):
        if torch:
            torch.set_num_threads(2)
            self.embedding = torch.nn.EmbeddingBag(30000, 64)
            self.head = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    def score(self, tokens):
        if not torch:
            return sum(tokens) % 8
        with torch.no_grad():
            return int(self.head(self.embedding(torch.tensor([tokens]))).argmax())


class Service:
    """Keeps the last answers, as services do; the cache is bounded."""

    def __init__(self, model):
        self.model = model
        self.answers = collections.deque(maxlen=1000)

    def handle(self, number, text):
        tokens = tokenizer.encode(text)
        answer = {"request": number, "route": self.model.score(tokens), "words": len(tokens)}
        self.answers.append(answer)
        return answer

    def serve(self, until):
        for number, text in enumerate(itertools.cycle(REQUESTS)):
            if time.monotonic() >= until:
                return
            self.handle(number, text)
            time.sleep(0.005)  # until the next request comes


def rss():
    """The resident set of this process, in bytes."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def verdict(grown, before, after):
    """Says what tracemalloc makes of the growth."""
    differences = after.compare_to(before, "lineno")
    seen = sum(d.size_diff for d in differences)
    print(f"  resident memory grew by    {grown / 2**20:8.1f} MiB")
    print(f"  tracemalloc accounts for   {seen / 2**20:8.1f} MiB, most of it by")
    for d in differences[:3]:
        frame = d.traceback[0]
        print(f"    {d.size_diff / 2**10:+8.1f} KiB  {os.path.basename(frame.filename)}:{frame.lineno}")


def main():
    seconds = float(sys.argv[1])
    service = Service(Model())
    service.serve(time.monotonic() + 1)  # warm up
    tracemalloc.start()
    service.serve(time.monotonic() + 1)
    before, resident = tracemalloc.take_snapshot(), rss()
    service.serve(time.monotonic() + seconds)
    grown = rss() - resident
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    verdict(grown, before, after)
    del before, after
    print("READY", os.getpid(), flush=True)
    service.serve(float("inf"))


if __name__ == "__main__":
    main()
