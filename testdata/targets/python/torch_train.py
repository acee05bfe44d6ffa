# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on several threads, as torch services do.

Prints READY and waits for a line; trains; keeps one small tensor a step of the
main thread (the leak); prints DONE and waits. Autograd runs backward passes on
threads of its own.
"""

import sys
import threading

import torch

STEPS, THREADS = 60, 2

torch.manual_seed(1)
torch.set_num_threads(2)
history = []


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)) + x)


def make_model():
    return torch.nn.Sequential(*[Block(32) for _ in range(6)])


def train(steps, keep):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(16, 32)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if keep:
            history.append(x[:1].clone())


def main():
    train(2, keep=False)
    print("READY", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=train, args=(STEPS, False)) for _ in range(THREADS)]
    for t in threads:
        t.start()
    train(STEPS, keep=True)
    for t in threads:
        t.join()
    print("DONE", flush=True)
    sys.stdin.readline()


main()
