"""Recall, bits per character and what each memory carries, on rounded (stored) weights.

    python3 evaluate.py --text heldout.xz (--checkpoint DIR | --model DIR) [--device cuda] [--cases 200] [--exact]

A case counts as recalled when every byte of the answer is the arg max given the true bytes before it; for a causal
model that is the same event as greedy free running producing the answer (induction over the bytes).
"""

import argparse
import json
import multiprocessing
import time

import numpy as np
import torch
import torch.nn.functional as F

import data
import gates as sv
import lethe_io
import network
import sv_gate
import trainer


def ablations(config):
    """Name -> keep vector of the memory groups."""
    groups = next((layer["groups"] for layer in config["layers"] if layer["type"] == "memory"), None)
    if groups is None:  # baseline.py
        return {"all": None}
    kinds, n = [g["kind"] for g in groups], len(groups)
    out = {"all": [1.0] * n, "none": [0.0] * n}
    for i, kind in enumerate(kinds):
        out["without " + kind] = [0.0 if j == i else 1.0 for j in range(n)]
        out["only " + kind] = [1.0 if j == i else 0.0 for j in range(n)]
    out["only the recurrences"] = [float(kind in ("palimpsa_d", "palimpsa_m", "vla")) for kind in kinds]
    return out


def keep_tensor(keep, batch, device):
    return None if keep is None else torch.tensor(keep, device=device).expand(batch, -1)


def with_slots(config, slots):
    """The dictionary enlarged at test time: no weight depends on N."""
    layers = [{**layer, "groups": [{**g, "slots": slots} if slots and g["kind"] == "ovq" else g for g in layer["groups"]]}
              if layer["type"] == "memory" else layer for layer in config["layers"]]
    return {**config, "layers": layers}


POOL = None  # processes for the exact gates, forked before the GPU is touched


def exact_gates(k, group, last):
    """Exact gates of the boundaries in last[i] (where sequence i's answer is read); zeros elsewhere.

    Enough for the answers only: the memory layer is the model's last that looks at other tokens.
    """
    b, t, h, _ = k.shape
    gate = torch.zeros(b, h, t // lethe_io.GRID, t, device=k.device, dtype=k.dtype)
    keys = F.normalize(k.double(), dim=-1).cpu().numpy()
    where = [(i, j, c) for i, ends in enumerate(last) for j in range(h) for c in ends]
    jobs = [(keys[i, :c * lethe_io.GRID, j], group["sigma"], group["ridge"], group["box_mass"], 150) for i, j, c in where]
    solutions = POOL.starmap(sv_gate.solve, jobs, 1) if POOL else [sv_gate.solve(*job) for job in jobs]
    for (i, j, c), sol in zip(where, solutions):
        gate[i, j, c, :c * lethe_io.GRID] = torch.from_numpy(sol["a"]).to(gate)
    return gate


class GateCache:
    """Ablations do not change the memory layer's keys: solve once a batch."""

    def __init__(self, steps, last=None):
        self.steps, self.last, self.gate = steps, last, None

    def __call__(self, k, group):
        if self.gate is None:
            if self.last is not None:
                self.gate = exact_gates(k, group, self.last)
            else:
                self.gate = sv.sv_gates(k, group["sigma"], group["ridge"], group["box_mass"], self.steps)
        return self.gate


@torch.no_grad()
def recall(config, weights, cases, names, steps, batch, exact, device):
    """{ablation: share of cases with every answer byte right}."""
    hits = {name: 0 for name in names}
    keeps = ablations(config)
    for at in range(0, len(cases), batch):
        part = cases[at:at + batch]
        length = -(-max(len(p) + len(a) for p, a, _ in part) // lethe_io.GRID) * lethe_io.GRID
        ids = np.zeros((len(part), length), np.uint8)
        last = []
        for i, (prompt, answer, _) in enumerate(part):
            row = prompt + answer
            ids[i, :len(row)] = np.frombuffer(row, np.uint8)
            last.append(sorted({(len(prompt) - 1) // lethe_io.GRID, (len(row) - 2) // lethe_io.GRID}))
        x = torch.from_numpy(ids).long().to(device)
        cache = GateCache(steps, last if exact else None)
        for name in names:
            keep = keep_tensor(keeps[name], len(part), device)
            best = network.forward(config, weights, x, cache, keep).argmax(-1).cpu().numpy()
            for i, (prompt, answer, _) in enumerate(part):
                got = best[i, len(prompt) - 1:len(prompt) + len(answer) - 1]
                hits[name] += bytes(got.astype(np.uint8)) == answer
    return {name: h / len(cases) for name, h in hits.items()}


@torch.no_grad()
def greedy(config, weights, cases, steps, exact, device):
    """Share of cases whose answer free-running greedy decoding writes: the check of the induction above."""
    hits = 0
    for prompt, answer, _ in cases:
        text = bytearray(prompt)
        for _ in answer:
            length = -(-len(text) // lethe_io.GRID) * lethe_io.GRID
            ids = torch.zeros(1, length, dtype=torch.long)
            ids[0, :len(text)] = torch.tensor(list(text))
            cache = GateCache(steps, [[(len(text) - 1) // lethe_io.GRID]] if exact else None)
            logits = network.forward(config, weights, ids.to(device), cache)
            text.append(int(logits[0, len(text) - 1].argmax()))
        hits += bytes(text[len(prompt):]) == answer
    return hits / len(cases)


@torch.no_grad()
def bits(config, weights, text, names, steps, batches, batch, tokens, device):
    """{ablation: bits per byte} on plain text, all positions of fresh sessions of `tokens` bytes."""
    rng = np.random.default_rng(99)
    total = {name: 0.0 for name in names}
    keeps = ablations(config)
    for _ in range(batches):
        ids = np.stack([data.book_slice(rng, text, tokens + 1) for _ in range(batch)])
        x = torch.from_numpy(ids).long().to(device)
        cache = GateCache(steps)
        for name in names:
            keep = keep_tensor(keeps[name], batch, device)
            logits = network.forward(config, weights, x[:, :-1], cache, keep)
            total[name] += float(F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())) / 0.6931472
    return {name: t / batches for name, t in total.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--checkpoint")
    parser.add_argument("--model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--bits-batches", type=int, default=4)
    parser.add_argument("--gate-steps", type=int, default=1000)
    parser.add_argument("--exact", action="store_true", help="exact SV gates where the answers are read")
    parser.add_argument("--far", type=int, default=0, help="also records at least this many bytes back")
    parser.add_argument("--slots", type=int, nargs="*", default=[], help="with --far: also with OVQ dictionaries of these sizes")
    parser.add_argument("--procs", type=int, default=0, help="processes for --exact")
    parser.add_argument("--only", nargs="*", help="ablations to run; default all")
    parser.add_argument("--greedy", type=int, default=0, help="also decode this many cases freely, one forward pass a byte")
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    if args.procs:
        global POOL
        POOL = multiprocessing.get_context("fork").Pool(args.procs)
    if args.model:
        config, start = lethe_io.load_model(args.model)
    else:
        config = trainer.read_config(args.checkpoint)
        start = lethe_io.round_stored(trainer.split_flat(trainer.read_flat(args.checkpoint), config))
    weights = {n: torch.from_numpy(np.array(w)).to(args.device) for n, w in start.items()}
    text = data.load_text(args.text)
    rng = np.random.default_rng(args.seed)
    cases = [data.evaluation_case(rng, text) for _ in range(args.cases)]
    names = args.only or list(ablations(config))
    begin = time.time()

    def report(what, value):
        print(json.dumps({what: value, "seconds": round(time.time() - begin, 1)}), flush=True)

    def recalled(of, some, cases):
        return recall(of, weights, cases, some, args.gate_steps, args.batch, args.exact, args.device)

    report("recall", recalled(config, names, cases))
    if args.greedy:
        report("greedy", greedy(config, weights, cases[:args.greedy], args.gate_steps, args.exact, args.device))
    report("unknown_after_removal", recalled(config, ["all"], [data.forgotten_case(c) for c in cases])["all"])
    if args.bits_batches:
        report("bpc", bits(config, weights, text, names, args.gate_steps, args.bits_batches, 16, 2048, args.device))
    if args.far:
        far = [data.evaluation_case(rng, text, args.far, (args.far + 200, args.far + 900)) for _ in range(args.cases)]
        some = [name for name in names if name in ("all", "only ovq", "only sv", "without sv")]
        for slots in [None] + args.slots:
            report(f"recall_{args.far}_back" + (f"_{slots}_slots" if slots else ""), recalled(with_slots(config, slots), some, far))
    if POOL:
        POOL.terminate()


if __name__ == "__main__":
    main()
