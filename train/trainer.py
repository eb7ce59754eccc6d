"""Trains lethe-tiny on one GPU or several, in stages, resumable.

    python3 trainer.py --text train.xz --out DIR [--resume DIR] --stages T:BATCH:LENGTH:LR0:LR1:GATE_STEPS:DROP ...

On several GPUs one such process runs a GPU (ranks.py); recipe starts them, for torchrun takes --start for an option of its own.

A stage lasts LENGTH seconds, "500M" tokens or "500M@100", whichever of the two ends first, and moves the learning rate linearly from LR0 to LR1.
On several GPUs a length is tokens only, for their clocks differ; BATCH is the whole batch.
DROP is the share of sequences in which some memory groups are switched off, so that every memory learns to carry what
it can and none falls silent. --resume continues a checkpoint, --start begins with a model directory's weights.
Checkpoints are files below 16 MiB: weights in float32, AdamW's moments in bfloat16, config.json.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import baseline
import data
import lethe_io
import network
import ranks
import tiny_config

PART = 12 << 20  # bytes of a checkpoint part
NEVER = float("inf")


class Batches(torch.utils.data.IterableDataset):
    """Each worker of each rank draws its own sequences."""

    def __init__(self, text, batch, tokens, seed, rank=0):
        self.args = (text, batch, tokens)
        self.seed, self.rank = seed, rank

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        worker = info.id + self.rank * info.num_workers if info else self.rank
        rng = np.random.default_rng([self.seed, worker])
        while True:
            ids, weight = data.training_batch(rng, *self.args)
            yield torch.from_numpy(ids), torch.from_numpy(weight)


def make_optimizer(weights, lr):
    """Weight decay on projections only (papers.md 2.2 exempts the gates' parameters; norms and taps likewise)."""
    decay = [w for n, w in weights.items() if w.ndim == 2 and "conv" not in n]
    plain = [w for n, w in weights.items() if not (w.ndim == 2 and "conv" not in n)]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    fused = {"fused": True} if decay[0].is_cuda else {}
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, **fused)


def group_dropout(batch, weight, keep_share, share, device):
    """[B, G]: in `share` of the sequences one group, drawn by `weight`, is kept, each other one with probability keep_share."""
    weight = torch.tensor(weight, device=device)
    groups = len(weight)
    keep = (torch.rand(batch, groups, device=device) < keep_share).float()
    forced = F.one_hot(torch.multinomial(weight, batch, replacement=True), groups).float()
    some = torch.maximum(keep, forced)
    return torch.where(torch.rand(batch, 1, device=device) < share, some, torch.ones_like(some))


def save_checkpoint(directory, config, weights, opt, meta):
    os.makedirs(directory, exist_ok=True)
    flat = torch.cat([w.detach().reshape(-1) for w in weights.values()]).cpu().numpy().tobytes()
    for i in range(0, len(flat), PART):
        with open(os.path.join(directory, f"w{i // PART}.bin"), "wb") as f:
            f.write(flat[i:i + PART])
    for key in ("exp_avg", "exp_avg_sq"):
        moments = [opt.state[w].get(key, torch.zeros_like(w)) if w in opt.state else torch.zeros_like(w) for w in weights.values()]
        bits = lethe_io.to_bf16_bits(torch.cat([m.reshape(-1) for m in moments]).cpu().numpy())
        with open(os.path.join(directory, f"{key}.bin"), "wb") as f:
            f.write(bits.tobytes())
    with open(os.path.join(directory, "meta.json"), "w") as f:
        json.dump(meta, f)
    with open(os.path.join(directory, "config.json"), "w") as f:
        f.write(lethe_io.format_config(config))


def read_flat(directory):
    raw, i = b"", 0
    while os.path.exists(os.path.join(directory, f"w{i}.bin")):
        with open(os.path.join(directory, f"w{i}.bin"), "rb") as f:
            raw += f.read()
        i += 1
    return np.frombuffer(raw, np.float32)


def read_config(directory):
    with open(os.path.join(directory, "config.json")) as f:
        return json.load(f)


def split_flat(flat, config):
    out, at = {}, 0
    for name, shape in lethe_io.tensor_shapes(config).items():
        size = int(np.prod(shape))
        out[name] = flat[at:at + size].reshape(shape)
        at += size
    if at != len(flat):
        raise ValueError(f"checkpoint holds {len(flat)} numbers, want {at}")
    return out


def load_moments(directory, config, weights, opt, step):
    for key in ("exp_avg", "exp_avg_sq"):
        with open(os.path.join(directory, f"{key}.bin"), "rb") as f:
            flat = lethe_io.from_bf16_bits(np.frombuffer(f.read(), np.uint16))
        for name, value in split_flat(flat, config).items():
            w = weights[name]
            state = opt.state[w]
            state[key] = torch.from_numpy(value.copy()).to(w.device)
            state["step"] = torch.tensor(float(step), device=w.device)


def make_blocks(use_compile):
    if not use_compile:
        return None
    functions = {"local": network.local_block, "mlp": network.mlp_block, "attention": baseline.attention_block}
    return {name: torch.compile(fn, dynamic=False) for name, fn in functions.items()}


def loss_of(config, weights, ids, weight, gate_steps, keep, blocks, stats=None, whole=None):
    """Weighted mean; `whole` is the weight it is divided by, default that of this batch."""
    ids = ids.long()
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=ids.is_cuda):
        logits = network.forward(config, weights, ids[:, :-1], gate_steps, keep, stats, blocks)
    ce = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").reshape(weight.shape)
    if stats is not None:
        answer = weight > 1
        right = (logits.argmax(-1) == ids[:, 1:]) & answer
        stats["answer_acc"] = right.sum() / answer.sum().clamp(min=1)
        stats["bpc"] = (ce * ~answer).sum() / (~answer).sum() / 0.6931472
        stats["answer_bits"] = (ce * answer).sum() / answer.sum().clamp(min=1) / 0.6931472
    return (ce * weight).sum() / (weight.sum() if whole is None else whole)


def run_stage(stage, config, weights, opt, text, meta, args, group, log):
    tokens, batch, (seconds, limit), lr0, lr1, gate_steps, drop = stage
    if group.world > 1 and seconds < NEVER:
        raise ValueError("on several GPUs a stage's length is in tokens (400M)")
    device, share = group.device, group.share(batch)
    source = Batches(text, share, tokens, meta["step"] + 17, group.rank)
    ahead = {"prefetch_factor": 4} if args.workers else {}
    loader = torch.utils.data.DataLoader(source, batch_size=None, num_workers=args.workers, pin_memory=device.type == "cuda", **ahead)
    blocks = make_blocks(args.compile)
    kinds = [g["kind"] for layer in config["layers"] for g in layer.get("groups", ())]
    favour = [float(args.favour.get(kind, 1.0)) for kind in kinds]
    start, first, trained, recent = time.time(), meta["step"], 0, time.time()
    first_token = meta["tokens"]
    for ids, weight in loader:
        now = time.time() - start
        done = max(now / seconds, (meta["tokens"] - first_token) / limit)
        if done >= 1.0 or (args.max_steps and meta["step"] - first >= args.max_steps):
            break
        warm = min(1.0, (meta["step"] + 1) / 200)
        for g in opt.param_groups:
            g["lr"] = warm * (lr0 + (lr1 - lr0) * done)
        keep = group_dropout(share, favour, args.keep, drop, device) if drop else None
        stats = {} if meta["step"] % 50 == 0 else None
        ids, weight = ids.to(device, non_blocking=True), weight.to(device, non_blocking=True)
        loss = loss_of(config, weights, ids, weight, gate_steps, keep, blocks, stats, group.total(weight.sum()))
        loss.backward()
        group.sum_gradients(weights.values())
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        meta["step"] += 1
        meta["tokens"] += batch * tokens
        trained += batch * tokens
        if stats is not None:  # of rank 0's share, the loss of the whole batch
            loss = group.total(loss.detach())
            line = {k: round(float(v), 4) for k, v in stats.items()}
            rate = trained / (time.time() - recent)
            trained, recent = 0, time.time()
            line.update(step=meta["step"], loss=round(float(loss), 4), norm=round(float(norm), 3), t=round(now, 1), tok_s=int(rate),
                        tokens=meta["tokens"], gpu_gb=round(torch.cuda.max_memory_allocated() / 1e9, 1) if device.type == "cuda" else 0)
            log(line)
            if not np.isfinite(float(loss)):
                raise RuntimeError("loss is not finite")
    if device.type == "cuda":
        torch.cuda.synchronize()
    meta["seconds"] += time.time() - start


def parse_stage(text):
    t, b, length, lr0, lr1, gate, drop = text.split(":")
    million, _, seconds = length.partition("M@") if "M" in length else ("", "", length)
    ends = (float(seconds or NEVER), float(million.rstrip("M")) * 1e6 if million else NEVER)
    return int(t), int(b), ends, float(lr0), float(lr1), int(gate), float(drop)


def starting_point(args):
    """config, weights, meta."""
    if args.resume:
        with open(os.path.join(args.resume, "meta.json")) as f:
            meta = json.load(f)
        config = read_config(args.resume)
        return config, split_flat(read_flat(args.resume), config), meta
    meta = {"step": 0, "tokens": 0, "seconds": 0.0}
    if args.start:
        return (*lethe_io.load_model(args.start), meta)
    config = baseline.config(mlp_width=args.mlp_width) if args.baseline else tiny_config.config()
    return config, tiny_config.initial_weights(config), meta


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--text-limit", type=int, help="bytes of the text to train on; default all")
    parser.add_argument("--resume")
    parser.add_argument("--start", help="model directory")
    parser.add_argument("--baseline", action="store_true", help="the plain transformer of baseline.py")
    parser.add_argument("--mlp-width", type=int, default=512, help="of the plain transformer")
    parser.add_argument("--favour", type=lambda s: dict(p.split("=") for p in s.split(",")), default={},
                        help="kind=weight,… of the memory kept on for certain when others are switched off")
    parser.add_argument("--keep", type=float, default=0.5, help="chance of the others to stay on then")
    parser.add_argument("--stages", nargs="+", required=True)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--max-steps", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    group = ranks.Ranks(args.device)
    torch.manual_seed(7 + group.rank)
    config, start, meta = starting_point(args)
    weights = {n: torch.from_numpy(w.copy()).to(group.device).requires_grad_() for n, w in start.items()}
    opt = make_optimizer(weights, 1e-3)
    if args.resume:
        load_moments(args.resume, config, weights, opt, meta["step"])
    text = data.load_text(args.text, args.text_limit)
    os.makedirs(args.out, exist_ok=True)
    out = open(os.path.join(args.out, "log.jsonl"), "a")

    def log(line):
        if not group.first:
            return
        out.write(json.dumps(line) + "\n")
        out.flush()
        print(json.dumps(line), flush=True)

    for stage in args.stages:
        log({"stage": stage})
        run_stage(parse_stage(stage), config, weights, opt, text, meta, args, group, log)
        if group.first:
            save_checkpoint(args.out, config, weights, opt, meta)
    group.close()


if __name__ == "__main__":
    main()
