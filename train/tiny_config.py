"""lethe-tiny's shape and starting weights."""

import numpy as np

import lethe_io


def config():
    local = {"type": "local", "heads": 4, "head_dim": 64, "window": 64, "conv_width": 4, "mlp_width": 512,
             "alibi_slopes": [0.05, 0.05, 0.05, 0.05]}
    memory = {"type": "memory", "conv_width": 4, "groups": [
        {"kind": "sv", "heads": 1, "key_dim": 64, "value_dim": 64, "sigma": 1.0, "box_mass": 256, "ridge": 2.0 ** -11},
        {"kind": "palimpsa_d", "heads": 1, "key_dim": 64, "value_dim": 64, "rank": 16},
        {"kind": "vla", "heads": 1, "key_dim": 64, "value_dim": 64, "variant": "vla", "nudge": False, "lambda0": 0.1,
         "read_norm": "rms"},
        {"kind": "ovq", "heads": 4, "key_dim": 64, "value_dim": 64, "slots": 512}]}
    mlp = {"type": "mlp", "mlp_width": 512}
    return {"format": "lethe-model/1", "name": "lethe-tiny", "tokenizer": "bytes", "vocab_size": 256, "end_of_text": 0,
            "width": 256, "max_tokens": 65536, "norm_eps": 1e-6,
            "layers": [dict(local) for _ in range(4)] + [memory, dict(mlp), dict(mlp)]}


def grown(palimpsa=4, vla=2):
    """The shape with more heads of the two recurrences (grow.py): four 64 × 64 states hold what one could not."""
    cfg = config()
    for group in cfg["layers"][4]["groups"]:
        group["heads"] = {"palimpsa_d": palimpsa, "vla": vla}.get(group["kind"], group["heads"])
    return cfg


def initial_weights(cfg, seed=1):
    """As lethe_io.init_weights, with slow forgetting for the one Palimpsa head: half-life near 700 tokens."""
    weights = lethe_io.init_weights(cfg, seed)
    for name, value in weights.items():
        if name.endswith("A_log"):
            value[:] = 0.0
        if name.endswith("dt_bias"):
            value[:] = 1e-3 + np.log(-np.expm1(-1e-3))
        if name.endswith("w_dt.weight"):
            value *= 0.5
        if name in ("embed.weight", "lm_head.weight"):
            value *= 0.5
    return weights
