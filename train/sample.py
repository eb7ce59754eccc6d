"""Continues a prompt with the plain float32 forward pass: slow, for a look at the text.

    python3 train/sample.py models/lethe-tiny "PROMPT" [BYTES] [TEMPERATURE]
"""

import sys

import numpy as np
import torch

import evaluate
import lethe_io
import network


@torch.no_grad()
def generate(config, weights, prompt, count, temperature, seed=1):
    text, rng = bytearray(prompt), np.random.default_rng(seed)
    for _ in range(count):
        length = -(-len(text) // lethe_io.GRID) * lethe_io.GRID
        ids = torch.zeros(1, length, dtype=torch.long)
        ids[0, :len(text)] = torch.tensor(list(text))
        cache = evaluate.GateCache(0, [[(len(text) - 1) // lethe_io.GRID]])
        logits = network.forward(config, weights, ids, cache)[0, len(text) - 1].double()
        if temperature == 0:
            text.append(int(logits.argmax()))
        else:
            p = torch.softmax(logits / temperature, 0).numpy()
            text.append(int(rng.choice(256, p=p / p.sum())))
    return bytes(text)


def main():
    config, start = lethe_io.load_model(sys.argv[1])
    weights = {n: torch.from_numpy(w) for n, w in start.items()}
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    temperature = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    print(generate(config, weights, sys.argv[2].encode(), count, temperature).decode("utf-8", "replace"))


if __name__ == "__main__":
    main()
