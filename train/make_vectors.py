"""Writes tests/testdata/model/: small random stacks with float64 logits of the plain definition, and lethe-tiny's.

    python3 train/make_vectors.py stacks          the random stacks (minutes)
    python3 train/make_vectors.py tiny            positions of models/lethe-tiny on the sentences below
"""

import json
import os
import sys
import time

import numpy as np
import torch

import data
import lethe_io
import network
import reference

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DATA = os.path.join(ROOT, "tests", "testdata", "model")
# Our own words; their order, the names and the values are drawn by a seed, chosen so that no discrete choice is a near tie.
TINY_SENTENCES = """The ward was quiet before the morning round.
Rain ran down the long windows.
The night nurse wrote her last lines by a small green lamp.
She had counted the bottles twice.
Somebody had left a bicycle against the gate.
Nobody came for it, and by noon it was a part of the yard.
The porter said that things which stay long enough belong there.
At four the clock in the hall struck five, as it always did.
The visitors looked up and hurried.
Then it was still again.""".splitlines()
MIN_GAP = 1e-4  # float32 on keys of norm 1 is good to about 1e-6


def local(width, heads=2, window=16):
    return {"type": "local", "heads": heads, "head_dim": width // heads, "window": window, "conv_width": 4,
            "mlp_width": 2 * width, "alibi_slopes": [0.05 * (i + 1) for i in range(heads)]}


def mlp(width):
    return {"type": "mlp", "mlp_width": 2 * width}


def memory(*groups):
    return {"type": "memory", "conv_width": 4, "groups": list(groups)}


def group(kind, heads, dim, **more):
    return {"kind": kind, "heads": heads, "key_dim": dim, "value_dim": more.pop("value_dim", dim), **more}


def sv(dim, mass, heads=1, sigma=1.0, **more):
    return group("sv", heads, dim, sigma=sigma, box_mass=mass, ridge=2.0 ** -11, **more)


def vla(dim, heads=1, variant="vla", nudge=False, read_norm="rms", lambda0=0.1, **more):
    return group("vla", heads, dim, variant=variant, nudge=nudge, lambda0=lambda0, read_norm=read_norm, **more)


def stack_configs():
    """name -> (config without name, tokens). Together every kind, flag and edge that docs/model-format.md names."""
    pal = dict(rank=8)
    return {
        "streaming": (32, 263, [
            local(32), memory(group("palimpsa_d", 2, 16, value_dim=24, **pal), group("palimpsa_m", 1, 16, metaplasticity=True, **pal),
                              group("palimpsa_m", 1, 16, metaplasticity=False, **pal), group("window", 2, 16, window=24, alibi_slopes=[0.05, 0.2])),
            mlp(32)]),
        "vla": (32, 330, [
            local(32), memory(vla(16, heads=2), vla(16, nudge=True), vla(16, variant="rls", value_dim=24),
                              vla(16, read_norm="paper"), vla(16, variant="rls", nudge=True, read_norm="paper", lambda0=1.0)),
            mlp(32)]),
        "exact": (32, 263, [
            local(32), memory(sv(16, 40), group("ovq", 1, 16, slots=24, value_dim=24)), mlp(32)]),
        "bounded": (48, 325, [
            local(48), local(48, heads=6, window=24),
            memory(sv(24, 60.5), group("palimpsa_d", 1, 24, **pal), vla(24), group("ovq", 2, 24, slots=48)), mlp(48), mlp(48)]),
        "contextual": (48, 210, [
            local(48), memory(sv(16, 30, sigma=1.5), group("ovq", 1, 24, slots=16), group("palimpsa_d", 1, 16, **pal)),
            local(48, window=8), mlp(48),
            memory(vla(24, nudge=True), sv(24, 24), group("ovq", 1, 16, slots=32), group("palimpsa_m", 1, 16, metaplasticity=True, **pal),
                   group("window", 1, 24, window=16, alibi_slopes=[0.1])),
            mlp(48)]),
    }


def make_config(name, width, layers, vocab=256):
    return {"format": "lethe-model/1", "name": name, "tokenizer": "bytes", "vocab_size": vocab, "end_of_text": 0,
            "width": width, "max_tokens": 65536, "norm_eps": 1e-6, "layers": layers}


def perturb(weights, rng):
    """Norm gains, D, b_scale, beta away from one and from each other, so that a swapped or ignored vector shows."""
    for name, value in weights.items():
        if value.ndim == 1:
            value *= np.exp(0.2 * rng.standard_normal(value.shape)).astype(np.float32)
    return weights


def smallest(gaps):
    out = {}
    for g in gaps:
        for key in ("seed_gap", "assign_gap", "margin_a", "margin_g"):
            if key in g:
                out[key] = min(out.get(key, float("inf")), g[key])
    return out


def positions(length):
    """The last token of every full chunk and the last 8 tokens."""
    ends = [t for t in range(lethe_io.GRID - 1, length, lethe_io.GRID)]
    return sorted(set(ends) | set(range(length - 8, length)))


def finite(x):
    return x if not isinstance(x, float) or np.isfinite(x) else None


def write_vector(directory, name, config, ids, result, keep, origin):
    """vectors.json: 17 significant digits, which read back to the same double."""
    small = smallest(result["gaps"])
    vector = {
        "format": "lethe-model-vectors/1", "name": name, "origin": origin,
        "comparable_in_f32": all(v >= MIN_GAP for v in small.values()),
        "smallest_gaps": {k: finite(v) for k, v in small.items()},
        "vocab_ids": [int(i) for i in ids], "positions": keep,
        "logits": [[float(v) for v in result["logits"][t]] for t in keep],
        "last_token_layer_outputs": [[float(v) for v in x[-1]] for x in result["layers"]],
        "gaps": [{k: finite(v) for k, v in g.items()} for g in result["gaps"]],
    }
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "vectors.json"), "w") as f:
        body = ",\n".join(f"{json.dumps(k)}: {_rows(v)}" for k, v in vector.items())
        f.write("{\n" + body + "\n}\n")
    return small, vector["comparable_in_f32"]


def _rows(value):
    if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
        return "[\n" + ",\n".join(json.dumps(v) for v in value) + "\n]"
    return json.dumps(value)


def make_stack(name, width, tokens, layers, max_tries=40):
    for seed in range(max_tries):
        config = make_config(name, width, layers)
        weights = lethe_io.init_weights(config, seed)
        rng = np.random.default_rng(1000 + seed)
        weights = perturb(weights, rng)
        ids = rng.integers(0, 256, tokens)
        result = reference.forward(config, reference.to_torch(weights), ids)
        small = smallest(result["gaps"])
        print(name, "seed", seed, small, flush=True)
        if all(v >= MIN_GAP for v in small.values()):
            break
    directory = os.path.join(DATA, name)
    lethe_io.save_model(directory, config, weights, all_f32=True)
    origin = f"train/make_vectors.py stacks, seed {seed}; float64, train/reference.py"
    return write_vector(directory, name, config, ids, result, positions(tokens), origin)


def tiny_ids(seed):
    """Three records among shuffled sentences, two of them asked for at the end."""
    rng = np.random.default_rng(seed)
    records = data.make_records(rng, 3, True, True)
    lines = [TINY_SENTENCES[i] for i in rng.permutation(len(TINY_SENTENCES))]
    for place, (statement, _, _) in zip((7, 4, 1), records):
        lines.insert(place, statement)
    lines += [question + answer for _, question, answer in (records[0], records[2])]
    return list(("\n".join(lines) + "\n").encode())


def ovq_gap(config, weights, ids):
    """Smallest gap of the OVQ choices alone, by the training forms in float64: the fast part of a search.

    Stops at the first gap below MIN_GAP. One memory layer, local layers under it.
    """
    eps, tokens = config["norm_eps"], len(ids) // lethe_io.GRID * lethe_io.GRID
    x = weights["embed.weight"][torch.as_tensor(ids[:tokens])][None]
    for i, layer in enumerate(config["layers"]):
        p = f"layers.{i}."
        if layer["type"] == "memory":
            break
        names = ("norm1.weight", "conv.weight", "wq.weight", "wk.weight", "wv.weight", "wo.weight")
        slopes = torch.tensor(layer["alibi_slopes"], dtype=x.dtype)
        x = network.local_block(x, *(weights[p + n] for n in names), slopes, layer["heads"], layer["window"], eps)
        x = network.mlp_block(x, *(weights[p + n] for n in ("norm2.weight", "w_gate.weight", "w_up.weight", "w_down.weight")), eps)
    h, worst = reference.rms_norm(x[0], weights[p + "norm.weight"], eps), float("inf")
    for g, group in enumerate(layer["groups"]):
        if group["kind"] != "ovq":
            continue
        keys = reference.conv(h @ weights[f"{p}groups.{g}.wk.weight"].T, weights[f"{p}groups.{g}.conv_k.weight"])
        for k in reference.l2(keys.unflatten(-1, (group["heads"], -1))).unbind(1):
            dk, dv, count = [], [], []
            for s in range(0, tokens, lethe_io.GRID):
                gaps, part = [], k[s:s + lethe_io.GRID]
                reference.ovq_update(dk, dv, count, part, part, s, group["slots"], gaps)
                worst = min(worst, gaps[0]["seed_gap"], gaps[0]["assign_gap"])
                if worst < MIN_GAP:
                    return worst
    return worst


def make_tiny(tries):
    """The first seed at which every choice is at least MIN_GAP from another outcome; fails if there is none."""
    config, weights = lethe_io.load_model(os.path.join(ROOT, "models", "lethe-tiny"))
    weights = reference.to_torch(weights)
    for seed in range(tries):
        ids = tiny_ids(seed)
        worst = ovq_gap(config, weights, ids)
        print("seed", seed, "tokens", len(ids), "OVQ gap", worst, flush=True)
        if worst < MIN_GAP:
            continue
        result = reference.forward(config, weights, ids)
        if min(smallest(result["gaps"]).values()) >= MIN_GAP:
            break
    else:
        raise SystemExit(f"no seed below {tries} keeps every choice {MIN_GAP} from a tie")
    keep = sorted(set(positions(len(ids))) | {40, 100, 250, 400})
    origin = f"train/make_vectors.py tiny, seed {seed}; model models/lethe-tiny; float64, train/reference.py"
    print(write_vector(os.path.join(DATA, "lethe-tiny"), "lethe-tiny", config, ids, result, keep, origin))


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "tiny":
        return make_tiny(int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
    for name, (width, tokens, layers) in stack_configs().items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        start = time.time()
        print(name, make_stack(name, width, tokens, layers), f"{time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
