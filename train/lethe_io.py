"""Model directories: config.json and model.safetensors as docs/model-format.md defines them.

Kept free of PyTorch so that the writer and the list of tensors can be checked where only numpy is installed.
"""

import json
import math
import os
import struct

import numpy as np

GRID = 64  # L of docs/model-format.md: SV boundaries and OVQ chunks
KINDS = ("sv", "palimpsa_d", "palimpsa_m", "vla", "ovq", "window")


def group_shapes(group, width, conv_width):
    """Tensors of one memory group without prefix, as {name: shape}."""
    h, k, v = group["heads"], group["key_dim"], group["value_dim"]
    kind, norm = group["kind"], v * (h if group.get("out_norm") == "group" else 1)
    shapes = {
        "wq.weight": (h * k, width), "wk.weight": (h * k, width), "wv.weight": (h * v, width),
        "conv_q.weight": (h * k, conv_width), "conv_k.weight": (h * k, conv_width), "conv_v.weight": (h * v, conv_width),
    }
    if kind in ("sv", "ovq"):
        shapes["beta"] = (h,)
    if kind in ("palimpsa_d", "palimpsa_m"):
        r = group["rank"]
        shapes.update({
            "w_dt.weight": (h, width), "dt_bias": (h,), "A_log": (h,), "w_b1.weight": (r, width),
            "w_b2.weight": (h * v, r), "b_scale": (h,), "D": (h,), "out_norm.weight": (norm,), "w_z.weight": (h * v, width),
        })
    if kind == "palimpsa_d":
        shapes["w_bs.weight"] = (h, width)
    if kind == "palimpsa_m":
        shapes.update({"conv_q.bias": (h * k,), "conv_k.bias": (h * k,), "conv_v.bias": (h * v,)})
    if kind == "vla":
        if group["variant"] == "vla":
            shapes["w_u.weight"] = (h * k, h * k)
        if group["read_norm"] == "rms":
            shapes["read_gain"] = (v,)
    return shapes


def baseline_shapes(layer, width):
    """The training-only layer type of baseline.py; kept here because this file imports no PyTorch."""
    hd = layer["heads"] * layer["head_dim"]
    return {"norm1.weight": (width,), "wq.weight": (hd, width), "wk.weight": (hd, width), "wv.weight": (hd, width),
            "wo.weight": (width, hd), "norm2.weight": (width,)}


def tensor_shapes(config):
    """All tensors the config implies, in file order, as {name: shape}."""
    d = config["width"]
    shapes = {"embed.weight": (config["vocab_size"], d)}
    for i, layer in enumerate(config["layers"]):
        p = f"layers.{i}."
        if layer["type"] == "local":
            hd = layer["heads"] * layer["head_dim"]
            shapes.update({
                p + "norm1.weight": (d,), p + "conv.weight": (d, layer["conv_width"]), p + "wq.weight": (hd, d),
                p + "wk.weight": (hd, d), p + "wv.weight": (hd, d), p + "wo.weight": (d, hd), p + "norm2.weight": (d,),
            })
        elif layer["type"] == "memory":
            shapes[p + "norm.weight"] = (d,)
            total = 0
            for g, group in enumerate(layer["groups"]):
                for name, shape in group_shapes(group, d, layer["conv_width"]).items():
                    shapes[f"{p}groups.{g}.{name}"] = shape
                total += group["heads"] * group["value_dim"]
            shapes[p + "wo.weight"] = (d, total)
        elif layer["type"] == "attention":
            shapes.update({p + n: s for n, s in baseline_shapes(layer, d).items()})
        else:
            shapes[p + "norm.weight"] = (d,)
        if layer["type"] != "memory":
            m = layer["mlp_width"]
            shapes.update({p + "w_gate.weight": (m, d), p + "w_up.weight": (m, d), p + "w_down.weight": (d, m)})
    shapes.update({"final_norm.weight": (d,), "lm_head.weight": (config["vocab_size"], d)})
    return shapes


def stored_dtype(name, shape):
    """lethe-tiny's storage rule: projections BF16; vectors and the small convolution taps F32."""
    return "F32" if len(shape) == 1 or "conv" in name else "BF16"


def to_bf16_bits(x):
    """Round float32 to bfloat16, nearest even, as uint16 bits. Finite input only."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16_bits(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_bf16(x):
    return from_bf16_bits(to_bf16_bits(x)).reshape(np.shape(x))


def round_stored(weights, all_f32=False):
    """The float32 values a reader of the stored file gets."""
    out = {}
    for name, value in weights.items():
        value = np.asarray(value, dtype=np.float32)
        keep = all_f32 or stored_dtype(name, value.shape) == "F32"
        out[name] = value if keep else round_bf16(value)
    return out


def save_model(directory, config, weights, all_f32=False):
    """Write config.json and model.safetensors; tensors in the order of tensor_shapes, offsets contiguous."""
    os.makedirs(directory, exist_ok=True)
    tensors, dtypes = {}, {}
    for name, shape in tensor_shapes(config).items():
        tensors[name] = np.ascontiguousarray(weights[name], dtype=np.float32)
        if tensors[name].shape != tuple(shape):
            raise ValueError(f"tensor {name}: shape {tensors[name].shape}, want {shape}")
        dtypes[name] = "F32" if all_f32 else stored_dtype(name, shape)
    write_tensors(os.path.join(directory, "model.safetensors"), tensors, dtypes)
    with open(os.path.join(directory, "config.json"), "w") as f:
        f.write(format_config(config))


def write_tensors(path, tensors, dtypes):
    """A safetensors file of float32 arrays, in the dict's order; dtypes: {name: "F32" or "BF16"}."""
    header, blobs, offset = {}, [], 0
    for name, value in tensors.items():
        blob = value.tobytes() if dtypes[name] == "F32" else to_bf16_bits(value).tobytes()
        header[name] = {"dtype": dtypes[name], "shape": list(value.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # the public format aligns the data to 8 bytes
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def read_tensors(path):
    """{name: float32 array} of a safetensors file; F32, BF16 and F16 are widened without change of value."""
    with open(path, "rb") as f:
        data = f.read()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    widen = {"F32": lambda raw: np.frombuffer(raw, "<f4"), "F16": lambda raw: np.frombuffer(raw, "<f2"),
             "BF16": lambda raw: from_bf16_bits(np.frombuffer(raw, "<u2"))}
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in widen:
            raise ValueError(f"tensor {name}: dtype {entry['dtype']}, want one of {sorted(widen)}")
        begin, end = entry["data_offsets"]
        values = widen[entry["dtype"]](data[8 + size + begin:8 + size + end])
        tensors[name] = values.reshape(entry["shape"]).astype(np.float32)
    return tensors


def format_config(config):
    """JSON with one layer or group a line: short to read, stable in diffs."""
    lines = []
    for key, value in config.items():
        if key != "layers":
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    layers = []
    for layer in config["layers"]:
        if layer["type"] == "memory":
            head = {k: v for k, v in layer.items() if k != "groups"}
            groups = ",\n".join("      " + json.dumps(g) for g in layer["groups"])
            layers.append("    " + json.dumps(head)[:-1] + ', "groups": [\n' + groups + "\n    ]}")
        else:
            layers.append("    " + json.dumps(layer))
    lines.append('  "layers": [\n' + ",\n".join(layers) + "\n  ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load_model(directory):
    """(config, {name: float32 array}); refuses a file whose tensors are not exactly the config's."""
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    weights = read_tensors(os.path.join(directory, "model.safetensors"))
    want = tensor_shapes(config)
    if set(want) != set(weights):
        raise ValueError(f"tensors differ from the config's: {sorted(set(want) ^ set(weights))[:5]}")
    for name, value in weights.items():
        if value.shape != tuple(want[name]):
            raise ValueError(f"tensor {name}: shape {value.shape}, want {want[name]}")
    return config, weights


def init_weights(config, seed, gain=1.0):
    """Random weights: projections N(0, gain²/fan_in), residual outputs scaled down, memory parameters as papers.md sets them."""
    rng = np.random.default_rng(seed)
    depth = 2 * len(config["layers"])
    weights = {}
    for name, shape in tensor_shapes(config).items():
        parts = name.split(".")
        last = parts[-2] if parts[-1] in ("weight", "bias") else parts[-1]
        if "norm" in last or last in ("D", "b_scale", "read_gain"):
            value = np.ones(shape)
        elif last.startswith("conv") and name.endswith("bias"):
            value = 0.1 * rng.standard_normal(shape)
        elif last.startswith("conv"):
            # The current token's tap dominates, so that a layer starts near the identity but already mixes.
            value = 0.3 * rng.standard_normal(shape)
            value[:, 0] += 1.0
        elif last == "embed":
            value = gain * rng.standard_normal(shape)
        elif last == "beta":
            value = np.full(shape, 4.0)
        elif last == "A_log":
            value = np.log(rng.uniform(0.5, 4.0, shape))
        elif last == "dt_bias":
            dt = np.exp(rng.uniform(math.log(1e-3), math.log(1e-2), shape))
            value = dt + np.log(-np.expm1(-dt))  # softplus⁻¹
        else:
            value = gain * rng.standard_normal(shape) / math.sqrt(shape[1])
            if last in ("wo", "w_down"):
                value /= math.sqrt(depth)
        weights[name] = value.astype(np.float32)
    return weights
