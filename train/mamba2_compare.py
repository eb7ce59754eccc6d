"""Mamba2ForCausalLM of Hugging Face transformers against the converted model, random weights, on the same tokens.

    python3 mamba2_compare.py                  largest difference of logits per shape; exit status 1 above the bounds
    python3 mamba2_compare.py --vectors DIR    also writes the stacks mamba2_* of tests/testdata/model into DIR

Needs PyTorch and transformers. transformers casts to float32 inside its norms and its scan whatever the model's dtype; for
float64 those casts are widened here (in_float64), the library's code is run as it is otherwise.
"""

import argparse
import contextlib
import os
import sys
from unittest import mock

import numpy as np
import torch

import lethe_io
import make_vectors
import mamba2
import network
import reference

TOKENS = 192  # three chunks of network.py's grid, and not a multiple of every chunk_size below
BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-12}  # of the largest logit


def shape(width, expand, head_dim, state, groups, layers, chunk, vocab=64, **more):
    return {"vocab_size": vocab, "hidden_size": width, "num_hidden_layers": layers, "num_heads": width * expand // head_dim,
            "head_dim": head_dim, "state_size": state, "n_groups": groups, "expand": expand, "conv_kernel": 4, "chunk_size": chunk,
            "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "use_conv_bias": True, "eos_token_id": 0, **more}


STORED = {
    "one_group": shape(32, 2, 16, 16, 1, 2, 16),
    "two_groups": shape(24, 2, 8, 16, 2, 2, 80),
    "group_per_head": shape(32, 1, 8, 8, 4, 3, 256, conv_kernel=3, use_conv_bias=False, tie_word_embeddings=True),
}
SHAPES = {
    **STORED,
    "three_groups": shape(64, 3, 32, 64, 3, 2, 128),
    "wide_state": shape(128, 2, 64, 128, 1, 4, 64, vocab=256),
    "large_eps": shape(48, 2, 24, 40, 4, 2, 40, layer_norm_epsilon=1e-2, conv_kernel=2),
    "mamba2_130m": shape(768, 2, 64, 128, 1, 3, 64, vocab=1024),  # its widths, three of its 24 layers
}


def random_state(hf, seed):
    """Tensors under transformers' names. Every vector is away from its starting value, so that an ignored one shows."""
    rng = np.random.default_rng(seed)
    width, heads = hf["hidden_size"], hf["num_heads"]
    inner, keys = heads * hf["head_dim"], hf["n_groups"] * hf["state_size"]
    state = {}

    def put(name, *size, center=0.0, spread=1.0):
        state[name] = (center + spread * rng.standard_normal(size)).astype(np.float32)

    put("backbone.embeddings.weight", hf["vocab_size"], width)
    for i in range(hf["num_hidden_layers"]):
        p = f"backbone.layers.{i}."
        put(p + "norm.weight", width, center=1.0, spread=0.2)
        put(p + "mixer.in_proj.weight", 2 * inner + 2 * keys + heads, width, spread=width ** -0.5)
        put(p + "mixer.conv1d.weight", inner + 2 * keys, 1, hf["conv_kernel"], spread=0.5)
        if hf["use_conv_bias"]:
            put(p + "mixer.conv1d.bias", inner + 2 * keys, spread=0.3)
        put(p + "mixer.dt_bias", heads, center=-3.0)  # steps of 0.007 to 0.3
        put(p + "mixer.A_log", heads, center=0.5, spread=0.7)
        put(p + "mixer.D", heads, center=1.0, spread=0.3)
        put(p + "mixer.norm.weight", inner, center=1.0, spread=0.2)
        put(p + "mixer.out_proj.weight", width, inner, spread=inner ** -0.5)
    put("backbone.norm_f.weight", width, center=1.0, spread=0.2)
    if not hf["tie_word_embeddings"]:
        put("lm_head.weight", hf["vocab_size"], width, spread=width ** -0.5)
    return state


def random_ids(hf, seed):
    return np.random.default_rng(seed + 1).integers(0, hf["vocab_size"], TOKENS)


def build(hf, state):
    """transformers' model with exactly these weights: every tensor used, every parameter set."""
    import transformers
    model = transformers.Mamba2ForCausalLM(transformers.Mamba2Config(**hf)).eval()
    found = model.load_state_dict({n: torch.from_numpy(w) for n, w in state.items()}, strict=False)
    tied = {"lm_head.weight"} if hf["tie_word_embeddings"] else set()
    if found.unexpected_keys or set(found.missing_keys) - tied:
        raise ValueError(f"names differ from transformers': {found}")
    return model


class Float64Torch:
    """The module torch, but float32 is float64."""
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def in_float64(model):
    """Casts to float32 inside transformers' Mamba2 give float64 while this is entered."""
    module = sys.modules[type(model).__module__]
    with mock.patch.object(module, "torch", Float64Torch()), mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def run_transformers(model, ids, dtype):
    """Logits [T, vocab], and every layer's output [T, width]."""
    layers = []
    model = model.to(dtype)
    hooks = [block.register_forward_hook(lambda _, __, out: layers.append((out[0] if isinstance(out, tuple) else out)[0]))
             for block in model.backbone.layers]
    ids = torch.as_tensor(ids)[None]
    with torch.no_grad():
        with in_float64(model) if dtype == torch.float64 else contextlib.nullcontext():
            logits = model(ids, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, layers


def run_training_form(config, weights, ids, dtype):
    """network.py, with its fused kernels where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() and dtype == torch.float32 else "cpu"
    weights = {n: w.to(device) for n, w in weights.items()}
    with torch.no_grad():
        return network.forward(config, weights, torch.as_tensor(ids, device=device)[None])[0].cpu()


def compare_shape(hf, seed, dtype):
    """(largest logit, largest difference of reference.py, of network.py) to transformers."""
    state, ids = random_state(hf, seed), random_ids(hf, seed)
    want, _ = run_transformers(build(hf, state), ids, dtype)
    config = mamba2.lethe_config(hf, "compare")
    weights = reference.to_torch(mamba2.convert_weights(state, hf), dtype)
    plain = reference.forward(config, weights, ids)["logits"]
    chunked = run_training_form(config, weights, ids, dtype)
    return tuple(float(x.abs().max()) for x in (want, plain - want, chunked - want))


def write_stack(directory, name, hf, seed):
    """A stack as make_vectors.py writes them, its numbers from transformers; for two_groups also transformers' own files."""
    import transformers
    state, ids = random_state(hf, seed), random_ids(hf, seed)
    model = build(hf, state)
    folder = os.path.join(directory, "mamba2_" + name)
    config = mamba2.lethe_config(hf, "mamba2_" + name)
    lethe_io.save_model(folder, config, mamba2.convert_weights(state, hf), all_f32=True)
    if name == "two_groups":
        model.save_pretrained(os.path.join(folder, "hf"))
        os.remove(os.path.join(folder, "hf", "generation_config.json"))  # defaults that nothing here reads
    logits, layers = run_transformers(model, ids, torch.float64)
    origin = (f"train/mamba2_compare.py --vectors, seed {seed}; float64, Mamba2ForCausalLM of transformers {transformers.__version__}, "
              f"PyTorch {torch.__version__}")
    keep = sorted({0, 1, 2, 3} | set(make_vectors.positions(len(ids))))
    make_vectors.write_vector(folder, "mamba2_" + name, config, ids, {"logits": logits, "layers": layers, "gaps": []}, keep, origin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vectors", metavar="DIR")
    args = parser.parse_args()
    try:
        import transformers
    except ImportError:
        sys.exit("mamba2_compare.py: transformers is not installed")
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {TOKENS} tokens; largest |difference| of logits to transformers")
    good = True
    for name, hf in SHAPES.items():
        for dtype, bound in BOUNDS.items():
            largest, plain, chunked = compare_shape(hf, args.seed, dtype)
            fine = max(plain, chunked) <= bound * largest
            good &= fine
            print(f"{name:15} {str(dtype)[6:]}: logits to {largest:.2f}; reference.py {plain:.2e}, network.py {chunked:.2e}"
                  f"{'' if fine else '  ABOVE THE BOUND'}", flush=True)
        if args.vectors and name in STORED:
            write_stack(args.vectors, name, hf, args.seed)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
