"""A model with more heads from a trained one, and Palimpsa heads that start where recall is near.

    python3 grow.py heads OLD_MODEL NEW_MODEL --text FILE
    python3 grow.py recall CHECKPOINT NEW_MODEL --text FILE

heads: palimpsa_d and vla get more heads (tiny_config.grown); everything else keeps its weights. A new head starts with
the projections of a head that recalls (sv, ovq), scaled up: elu + 1 lets a large input through as a sharp, sparse feature
and makes a small one nearly constant. Its output projection starts at random, small.

recall: two of the Palimpsa heads start again. Palimpsa reads by plain dot products, with nothing that takes back what
other keys have in common with the query, so keys must be signed, their mean near zero: projections of two OVQ heads of
that kind, small, where silu is nearly linear. D starts at 0 (at 1 the token's own value drowns what is read), the write
gate at a logistic regression that tells the bytes of a recorded value from all others.
"""

import argparse
import re

import numpy as np
import torch

import chunked
import data
import lethe_io
import network
import tiny_config
import trainer

VALUE = re.compile(rb"\[Record\] \w+ \S+ \w+ (\w+\.)")
SHARPNESS = 2.5  # root mean square of a new head's q and k before the feature map
START_DT = {"palimpsa_d": (1e-3, 1e-4, 3e-4, 1e-2)}  # half-lives of 700, 7,000, 2,300 and 70 tokens


def memory_at(config):
    return next(i for i, layer in enumerate(config["layers"]) if layer["type"] == "memory")


@torch.no_grad()
def memory_input(config, weights, ids):
    """What the memory layer's projections see, [B, T, D]."""
    at = memory_at(config)
    below = {**config, "layers": config["layers"][:at]}
    w = {n: torch.from_numpy(x.copy()) for n, x in weights.items()}
    w["final_norm.weight"] = w[f"layers.{at}.norm.weight"]
    return network.forward(below, w, torch.from_numpy(ids).long(), hidden=True)


@torch.no_grad()
def sizes(config, weights, text):
    """{(group, c): root mean square of each head's q, k, v after the convolution} on plain text."""
    at, w = memory_at(config), {n: torch.from_numpy(x.copy()) for n, x in weights.items()}
    h = memory_input(config, weights, np.stack([data.book_slice(np.random.default_rng(i), text, 512) for i in range(2)]))
    out = {}
    for g, group in enumerate(config["layers"][at]["groups"]):
        p = f"layers.{at}.groups.{g}."
        for c in "qkv":
            z = chunked.conv(h @ w[f"{p}w{c}.weight"].T, w[f"{p}conv_{c}.weight"])
            out[g, c] = network.heads_of(z, group["heads"]).pow(2).mean((0, 1, 3)).sqrt().numpy()
    return out


def donors(config):
    """[(group, head)] of the heads that carry the recall, the support-vector head first."""
    groups = config["layers"][memory_at(config)]["groups"]
    order = [g for kind in ("sv", "ovq") for g, group in enumerate(groups) if group["kind"] == kind]
    return [(g, h) for g in order for h in range(groups[g]["heads"])]


def grow_group(prefix, old_group, new_group, old, new, given, size, at):
    """new starts random; the old heads are copied, the added ones take q, k, v of the heads in `given`."""
    was, kd, vd = old_group["heads"], old_group["key_dim"], old_group["value_dim"]
    for name, shape in lethe_io.group_shapes(new_group, 0, 0).items():
        target, source = new[prefix + name], old[prefix + name]
        if source.shape == target.shape:
            target[...] = source
        elif name == "w_u.weight":
            target[:len(source)] = 0.0
            target[:len(source), :len(source)] = source
        else:
            target[:len(source)] = source
    for h in range(was, new_group["heads"]):
        g, donor = given[(h - was) % len(given)]
        for c, dim in (("q", kd), ("k", kd), ("v", vd)):
            rows, to = slice(donor * dim, (donor + 1) * dim), slice(h * dim, (h + 1) * dim)
            factor = 1.0 if c == "v" else SHARPNESS / size[g, c][donor]
            new[f"{prefix}w{c}.weight"][to] = factor * old[f"layers.{at}.groups.{g}.w{c}.weight"][rows]
            new[f"{prefix}conv_{c}.weight"][to] = old[f"layers.{at}.groups.{g}.conv_{c}.weight"][rows]
        if "dt_bias" in {n.split(".")[-1] for n in lethe_io.group_shapes(new_group, 0, 0)}:
            dt = START_DT[new_group["kind"]][h % 4]
            new[prefix + "A_log"][h] = 0.0
            new[prefix + "dt_bias"][h] = dt + np.log(-np.expm1(-dt))
            new[prefix + "w_dt.weight"][h] *= 0.2


def grow(config, weights, text, seed=2):
    wanted = tiny_config.grown()
    new = lethe_io.init_weights(wanted, seed)
    at = memory_at(config)
    size, given = sizes(config, weights, text), donors(config)
    for name, value in weights.items():
        if new[name].shape == value.shape:
            new[name] = value.copy()
    old_groups, new_groups = config["layers"][at]["groups"], wanted["layers"][at]["groups"]
    wo, column, old_column = new[f"layers.{at}.wo.weight"], 0, 0
    wo *= 0.3
    for g, (was, now) in enumerate(zip(old_groups, new_groups)):
        if now["heads"] > was["heads"]:
            grow_group(f"layers.{at}.groups.{g}.", was, now, weights, new, given, size, at)
        width = was["heads"] * was["value_dim"]
        wo[:, column:column + width] = weights[f"layers.{at}.wo.weight"][:, old_column:old_column + width]
        column += now["heads"] * now["value_dim"]
        old_column += width
    return wanted, new


RECALL_HEADS = {1: 3, 2: 1}  # Palimpsa head -> OVQ head whose keys it takes
SMALL = 0.3  # root mean square of q and k before silu
RECALL_DT = 1e-4


def labelled_batch(text, batch=48, tokens=1024):
    """Training sequences, and which of their bytes belong to a recorded value (full stop included)."""
    ids, _ = data.training_batch(np.random.default_rng(41), text, batch, tokens)
    is_value = np.zeros(ids.shape, bool)
    for i, row in enumerate(ids):
        for found in VALUE.finditer(row.tobytes()):
            is_value[i, found.start(1):found.end(1)] = True
    return ids[:, :tokens], is_value[:, :tokens]


def write_gate(h, is_value):
    """Weights of a logistic regression without bias on h."""
    x, y = h.reshape(-1, h.shape[-1]).double(), torch.from_numpy(is_value.reshape(-1)).double()
    w = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    opt = torch.optim.LBFGS([w], max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y) + 1e-4 * (w * w).sum()
        loss.backward()
        return loss
    opt.step(closure)
    g = torch.sigmoid(x @ w.detach())
    print("write gate: mean at values", float(g[y > 0].mean()), "elsewhere", float(g[y == 0].mean()))
    return w.detach().numpy()


def seed_recall(config, weights, text):
    at = memory_at(config)
    kinds = [g["kind"] for g in config["layers"][at]["groups"]]
    pal, ovq = kinds.index("palimpsa_d"), kinds.index("ovq")
    to_p, from_p = f"layers.{at}.groups.{pal}.", f"layers.{at}.groups.{ovq}."
    weights = {n: x.copy() for n, x in weights.items()}
    ids, is_value = labelled_batch(text)
    gate = write_gate(memory_input(config, weights, ids), is_value)
    size = sizes(config, weights, text)
    for head, donor in RECALL_HEADS.items():
        to, rows = slice(64 * head, 64 * head + 64), slice(64 * donor, 64 * donor + 64)
        for c in "qkv":
            weights[f"{to_p}w{c}.weight"][to] = weights[f"{from_p}w{c}.weight"][rows]
            # The taps take the factor: a small projection would be overrun by AdamW's first steps.
            factor = (SMALL if c in "qk" else 1.0) / size[ovq, c][donor]
            weights[f"{to_p}conv_{c}.weight"][to] = factor * weights[f"{from_p}conv_{c}.weight"][rows]
        weights[to_p + "D"][head] = 0.0
        weights[to_p + "w_bs.weight"][head] = gate
        weights[to_p + "A_log"][head] = 0.0
        weights[to_p + "dt_bias"][head] = RECALL_DT + np.log(-np.expm1(-RECALL_DT))
        weights[to_p + "w_dt.weight"][head] = 0.0
        weights[to_p + "b_scale"][head] = 0.0
    return weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("heads", "recall"))
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--text", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = data.load_text(args.text, 1 << 20)
    if args.what == "heads":
        return lethe_io.save_model(args.new, *grow(*lethe_io.load_model(args.old), text))
    config = trainer.read_config(args.old)
    weights = trainer.split_flat(trainer.read_flat(args.old), config)
    lethe_io.save_model(args.new, config, seed_recall(config, weights, text), all_f32=True)


if __name__ == "__main__":
    main()
