"""Mamba2 of Hugging Face transformers -> a model directory of Lethe: palimpsa_m with metaplasticity off is that recurrence.

    python3 mamba2.py HF_DIRECTORY MODEL_DIRECTORY [--name NAME] [--max-tokens N] [--norm-per-group]

What differs is only how the weights lie: in_proj and conv1d hold z, x, B, C and dt in one matrix; B and C of one group serve
several heads, here each head has its own copy; a convolution's taps are stored oldest first there, newest first here; the
gated norm spans all heads (out_norm "group"). mamba2_compare.py runs both on the same tokens.

norm_groups: over how many equal runs the gated norm goes. transformers norms over all of expand * hidden_size (1); mamba_ssm,
with which checkpoints of several groups were trained, over each group of B and C by itself (n_groups, --norm-per-group).
Every run is a palimpsa_m group of its own.
"""

import argparse
import json
import math
import os
import re

import numpy as np

import lethe_io

REQUIRED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_heads", "head_dim", "state_size", "n_groups", "expand",
            "conv_kernel", "layer_norm_epsilon")
# docs/model-format.md section 1: (their key, largest value, multiple of).
LIMITS = (("vocab_size", 65536, 1), ("hidden_size", 4096, 8), ("num_hidden_layers", 64, 1), ("num_heads", 1024, 1), ("head_dim", 4096, 8),
          ("state_size", 4096, 8), ("n_groups", 1024, 1), ("conv_kernel", 8, 1))
HEADS_MAX, GROUPS_MAX = 64, 16
# Standing in files without metaplasticity, read by nothing: the model format has one set of tensors for both settings.
UNUSED = ("w_b1.weight", "w_b2.weight", "b_scale")


def unbounded(limit):
    """True for a time_step_limit that clamps nothing; JSON spells infinity in several ways."""
    low, high = limit
    high = high.get("__float__") if isinstance(high, dict) else high
    return float(low) <= 0 and float(high) == math.inf


def check(hf, norm_groups=1):
    """Raises ValueError where Lethe would compute something else, or cannot hold the model."""
    missing = [key for key in REQUIRED if key not in hf]
    if missing:
        raise ValueError(f"config.json has no {', '.join(missing)}")
    for key, largest, multiple in LIMITS:
        if not 1 <= hf[key] <= largest or hf[key] % multiple:
            raise ValueError(f"{key} = {hf[key]}, want at most {largest}" + (f" and a multiple of {multiple}" if multiple > 1 else ""))
    if hf["num_heads"] * hf["head_dim"] != int(hf["expand"] * hf["hidden_size"]):
        raise ValueError("num_heads * head_dim is not expand * hidden_size")
    if hf["num_heads"] % hf["n_groups"]:
        raise ValueError("num_heads is not a multiple of n_groups")
    if norm_groups > GROUPS_MAX or hf["num_heads"] // norm_groups > HEADS_MAX:
        raise ValueError(f"num_heads = {hf['num_heads']} in {norm_groups} norm groups, want at most {GROUPS_MAX} of at most {HEADS_MAX} heads")
    if hf.get("use_bias"):
        raise ValueError("use_bias: the projections of a palimpsa_m group have no bias")
    if hf.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ValueError(f"hidden_act = {hf['hidden_act']}, want silu")
    if not unbounded(hf.get("time_step_limit", (0.0, math.inf))):
        raise ValueError("time_step_limit: Lethe does not clamp the time step")


def lethe_config(hf, name, max_tokens=65536, norm_groups=1):
    check(hf, norm_groups)
    group = {"kind": "palimpsa_m", "heads": hf["num_heads"] // norm_groups, "key_dim": hf["state_size"], "value_dim": hf["head_dim"],
             "rank": 1, "metaplasticity": False, "out_norm": "group"}
    layer = {"type": "memory", "conv_width": hf["conv_kernel"], "groups": [group] * norm_groups}
    end = hf.get("eos_token_id")
    end = end if isinstance(end, int) and 0 <= end < hf["vocab_size"] else -1
    return {"format": "lethe-model/1", "name": name, "tokenizer": "bytes", "vocab_size": hf["vocab_size"], "end_of_text": end,
            "width": hf["hidden_size"], "max_tokens": max_tokens, "norm_eps": hf["layer_norm_epsilon"],
            "layers": [layer] * hf["num_hidden_layers"]}


def per_head(rows, hf):
    """Rows of n_groups groups -> rows of num_heads heads: head i reads group i * n_groups // num_heads."""
    grouped = rows.reshape((hf["n_groups"], hf["state_size"]) + rows.shape[1:])
    return np.repeat(grouped, hf["num_heads"] // hf["n_groups"], axis=0).reshape((-1,) + rows.shape[1:])


def convert_mixer(mixer, hf):
    """Tensors of one Mamba2Mixer -> tensors of a palimpsa_m group, every one head by head, and the output projection."""
    inner, keys = hf["num_heads"] * hf["head_dim"], hf["n_groups"] * hf["state_size"]
    z, x, b, c, dt = np.split(mixer.pop("in_proj.weight"), np.cumsum([inner, inner, keys, keys]))
    taps = mixer.pop("conv1d.weight")[:, 0, ::-1]
    bias = mixer.pop("conv1d.bias", np.zeros(len(taps), np.float32))
    (taps_x, taps_b, taps_c), (bias_x, bias_b, bias_c) = (np.split(a, [inner, inner + keys]) for a in (taps, bias))
    group = {
        "wq.weight": per_head(c, hf), "wk.weight": per_head(b, hf), "wv.weight": x,
        "conv_q.weight": per_head(taps_c, hf), "conv_k.weight": per_head(taps_b, hf), "conv_v.weight": taps_x,
        "conv_q.bias": per_head(bias_c, hf), "conv_k.bias": per_head(bias_b, hf), "conv_v.bias": bias_x,
        "w_dt.weight": dt, "w_z.weight": z, "dt_bias": mixer.pop("dt_bias"), "A_log": mixer.pop("A_log"), "D": mixer.pop("D"),
        "out_norm.weight": mixer.pop("norm.weight"),
    }
    return group, mixer.pop("out_proj.weight")


def convert_weights(state, hf, norm_groups=1):
    """{name in transformers: float32 array} -> {name in model.safetensors: float32 array}."""
    rest, config = dict(state), lethe_config(hf, "unnamed", norm_groups=norm_groups)
    embed = rest.pop("backbone.embeddings.weight")
    if "lm_head.weight" not in rest and hf.get("tie_word_embeddings") is False:
        raise ValueError("lm_head.weight is missing and tie_word_embeddings is false")
    weights = {"embed.weight": embed, "lm_head.weight": rest.pop("lm_head.weight", embed),
               "final_norm.weight": rest.pop("backbone.norm_f.weight")}
    shapes = lethe_io.tensor_shapes(config)
    for i in range(hf["num_hidden_layers"]):
        theirs, ours = f"backbone.layers.{i}.", f"layers.{i}."
        weights[ours + "norm.weight"] = rest.pop(theirs + "norm.weight")
        names = [n for n in rest if n.startswith(theirs + "mixer.")]
        mixer = {n[len(theirs + "mixer."):]: rest.pop(n) for n in names}
        group, weights[ours + "wo.weight"] = convert_mixer(mixer, hf)
        for g in range(norm_groups):
            weights.update({f"{ours}groups.{g}.{n}": np.split(w, norm_groups)[g] for n, w in group.items()})
            weights.update({n: np.zeros(shapes[n], np.float32) for n in (f"{ours}groups.{g}.{u}" for u in UNUSED)})
        rest.update({f"{theirs}mixer.{n}": w for n, w in mixer.items()})
    if rest:
        raise ValueError(f"tensors without a place: {sorted(rest)[:5]}")
    return weights


def read_hf(directory):
    """(config, tensors) of a Hugging Face directory, its tensors in one file or in several with an index."""
    with open(os.path.join(directory, "config.json")) as f:
        hf = json.load(f)
    index, files = os.path.join(directory, "model.safetensors.index.json"), ["model.safetensors"]
    if os.path.exists(index):
        with open(index) as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    state = {}
    for name in files:
        state.update(lethe_io.read_tensors(os.path.join(directory, os.path.basename(name))))
    return hf, state


def stored_exactly(weights):
    """True when the matrices are BF16 values already, so that storing them as BF16 changes none."""
    return all(np.array_equal(w, lethe_io.round_stored({n: w})[n]) for n, w in weights.items())


def convert(source, target, name=None, max_tokens=65536, norm_per_group=False):
    hf, state = read_hf(source)
    norm_groups = hf.get("n_groups", 1) if norm_per_group else 1
    name = name or re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(os.path.abspath(source)))[:64]
    weights = convert_weights(state, hf, norm_groups)
    lethe_io.save_model(target, lethe_config(hf, name, max_tokens, norm_groups), weights, all_f32=not stored_exactly(weights))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="directory with config.json and safetensors")
    parser.add_argument("target", help="model directory to write")
    parser.add_argument("--name", help="name in config.json; default: the source directory's")
    parser.add_argument("--max-tokens", type=int, default=65536, help="longest retained history")
    parser.add_argument("--norm-per-group", action="store_true", help="gated norm over each of n_groups by itself, as mamba_ssm has it")
    args = parser.parse_args()
    try:
        convert(args.source, args.target, args.name, args.max_tokens, args.norm_per_group)
    except KeyError as missing:
        raise SystemExit(f"{args.source}: no tensor {missing}")
    except ValueError as error:
        raise SystemExit(f"{args.source}: {error}")
    except OSError as error:
        raise SystemExit(str(error))


if __name__ == "__main__":
    main()
