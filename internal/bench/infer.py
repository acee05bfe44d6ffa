# SPDX-License-Identifier: Apache-2.0
"""Torch inference as a benchmark's target: small layers, so many allocations.

Says READY; each line of stdin is a number of inferences, answered with
"PAIR ns", the mean time of one.
"""

import sys
import time

import torch


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=128, batch_first=True),
        num_layers=4,
    ).eval()
    x = torch.randn(1, 16, 64)
    with torch.no_grad():
        for _ in range(20):  # warm up
            model(x)
        print("READY", flush=True)
        for line in sys.stdin:
            n = int(line)
            start = time.perf_counter_ns()
            for _ in range(n):
                model(x)
            print("PAIR", (time.perf_counter_ns() - start) / n, flush=True)


main()
