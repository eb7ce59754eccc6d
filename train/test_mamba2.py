"""The converted Mamba2 is Mamba2: against a plain form of its equations, and against logits of transformers itself.

Run: python3 -m unittest discover -s train. Where transformers is installed, also against the library (mamba2_compare.py).
"""

import importlib.util
import json
import os
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    raise unittest.SkipTest("numpy is not installed") from missing

import lethe_io
import mamba2

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    import mamba2_compare as compare
    import make_vectors as mv
    import network
    import reference


def plain_mamba2(hf, state, ids, norm_groups=1):
    """Logits by the recurrence of the Mamba2 paper (Dao and Gu, 2024), token after token, on the tensors of transformers.

    Per head, with the B and C of its group: S <- exp(-exp(A_log) dt) S + dt x B^T, y = S C + D x.
    """
    def weight(name):
        return torch.from_numpy(state[name]).double()

    def norm(x, gain):
        return x / torch.sqrt((x * x).mean() + hf["layer_norm_epsilon"]) * gain

    heads, size, keys = hf["num_heads"], hf["head_dim"], hf["state_size"]
    inner, span = heads * size, hf["n_groups"] * keys
    x = weight("backbone.embeddings.weight")[torch.as_tensor(ids)]
    for i in range(hf["num_hidden_layers"]):
        p = f"backbone.layers.{i}.mixer."
        taps, decay = weight(p + "conv1d.weight")[:, 0], torch.exp(weight(p + "A_log"))
        bias = weight(p + "conv1d.bias") if hf["use_conv_bias"] else 0.0
        memory = torch.zeros(heads, size, keys, dtype=torch.float64)
        recent = torch.zeros(len(taps), taps.shape[1], dtype=torch.float64)  # oldest first
        out = []
        for token in x:
            projected = weight(p + "in_proj.weight") @ norm(token, weight(f"backbone.layers.{i}.norm.weight"))
            z, mixed, dt = projected.split([inner, inner + 2 * span, heads])
            recent = torch.cat([recent[:, 1:], mixed[:, None]], 1)
            mixed = (taps * recent).sum(1) + bias
            value, b, c = (mixed * torch.sigmoid(mixed)).split([inner, span, span])
            value, step = value.reshape(heads, size), torch.log1p(torch.exp(dt + weight(p + "dt_bias")))
            read = torch.empty(heads, size, dtype=torch.float64)
            for h in range(heads):
                first = h // (heads // hf["n_groups"]) * keys
                memory[h] = torch.exp(-decay[h] * step[h]) * memory[h] + step[h] * torch.outer(value[h], b[first:first + keys])
                read[h] = memory[h] @ c[first:first + keys] + weight(p + "D")[h] * value[h]
            gated, gain = read.reshape(inner) * z * torch.sigmoid(z), weight(p + "norm.weight")
            gated = torch.cat([norm(a, g) for a, g in zip(gated.chunk(norm_groups), gain.chunk(norm_groups))])
            out.append(token + weight(p + "out_proj.weight") @ gated)
        x = torch.stack(out)
    head = weight("lm_head.weight" if "lm_head.weight" in state else "backbone.embeddings.weight")
    return torch.stack([head @ norm(token, weight("backbone.norm_f.weight")) for token in x])


def largest(x):
    return float(x.abs().max())


@unittest.skipIf(torch is None, "PyTorch is not installed")
class ConvertTest(unittest.TestCase):
    def test_equals_the_plain_recurrence(self):
        for name in ("one_group", "two_groups", "group_per_head", "large_eps"):
            with self.subTest(name):
                hf = compare.SHAPES[name]
                state, ids = compare.random_state(hf, 5), compare.random_ids(hf, 5)[:128]
                want = plain_mamba2(hf, state, ids)
                config, weights = mamba2.lethe_config(hf, name), reference.to_torch(mamba2.convert_weights(state, hf))
                self.assertLess(largest(reference.forward(config, weights, ids)["logits"] - want), 1e-12 * largest(want))
                chunked = network.forward(config, weights, torch.as_tensor(ids)[None])[0]
                self.assertLess(largest(chunked - want), 1e-12 * largest(want))

    def test_norm_per_group(self):
        for name in ("two_groups", "group_per_head"):
            with self.subTest(name):
                hf = compare.SHAPES[name]
                groups = hf["n_groups"]
                state, ids = compare.random_state(hf, 5), compare.random_ids(hf, 5)[:64]
                want = plain_mamba2(hf, state, ids, groups)
                config = mamba2.lethe_config(hf, name, norm_groups=groups)
                weights = reference.to_torch(mamba2.convert_weights(state, hf, groups))
                self.assertLess(largest(reference.forward(config, weights, ids)["logits"] - want), 1e-12 * largest(want))
                self.assertGreater(largest(plain_mamba2(hf, state, ids) - want), 0.01 * largest(want))

    def test_directory_of_two_bf16_files_with_tied_embeddings(self):
        hf = compare.SHAPES["group_per_head"]
        state = {n: lethe_io.round_bf16(w) for n, w in compare.random_state(hf, 6).items()}
        names = sorted(state)
        files = {n: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, n in enumerate(names)}
        with tempfile.TemporaryDirectory() as folder:
            for file in set(files.values()):
                part = {n: state[n] for n in names if files[n] == file}
                lethe_io.write_tensors(os.path.join(folder, file), part, {n: "BF16" for n in part})
            for name, content in (("config.json", {**hf, "time_step_limit": [0.0, float("inf")]}),
                                  ("model.safetensors.index.json", {"weight_map": files})):
                with open(os.path.join(folder, name), "w") as f:
                    json.dump(content, f)
            target = os.path.join(folder, "converted")
            mamba2.convert(folder, target, "two-files")
            config, weights = lethe_io.load_model(target)
            self.assertLess(os.path.getsize(os.path.join(target, "model.safetensors")), 3 * sum(w.size for w in weights.values()))
        self.assertEqual(config, mamba2.lethe_config(hf, "two-files"))
        for name, want in mamba2.convert_weights(state, hf).items():
            np.testing.assert_array_equal(weights[name], want, name)

    def test_refuses_what_it_would_compute_differently(self):
        good = compare.SHAPES["two_groups"]
        for change, word in (({"use_bias": True}, "use_bias"), ({"hidden_act": "gelu"}, "hidden_act"), ({"n_groups": 4}, "n_groups"),
                             ({"time_step_limit": [0.0, 0.1]}, "time_step_limit"), ({"time_step_limit": [0.01, "Infinity"]}, "time_step_limit"),
                             ({"num_heads": 12}, "num_heads"), ({"num_heads": 96, "expand": 32}, "64 heads"),
                             ({"state_size": 12}, "state_size"), ({"vocab_size": 70000}, "vocab_size")):
            with self.subTest(word), self.assertRaisesRegex(ValueError, word):
                mamba2.check({**good, **change})
        with self.assertRaisesRegex(ValueError, "no num_heads"):
            mamba2.check({k: v for k, v in good.items() if k != "num_heads"})

    def test_refuses_tensors_it_does_not_know_and_a_missing_head(self):
        hf = compare.SHAPES["two_groups"]
        state = compare.random_state(hf, 7)
        with self.assertRaisesRegex(ValueError, "mixer.extra"):
            mamba2.convert_weights({**state, "backbone.layers.0.mixer.extra": state["lm_head.weight"]}, hf)
        state.pop("lm_head.weight")
        with self.assertRaisesRegex(ValueError, "lm_head"):
            mamba2.convert_weights(state, hf)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class StoredLogitsTest(unittest.TestCase):
    """tests/testdata/model/mamba2_*: logits that transformers computed in float64."""

    def stored(self, name):
        folder = os.path.join(mv.DATA, "mamba2_" + name)
        with open(os.path.join(folder, "vectors.json")) as f:
            vectors = json.load(f)
        return folder, vectors, torch.tensor(vectors["logits"], dtype=torch.float64)

    def test_layers_give_the_logits_of_transformers(self):
        for name in compare.STORED:
            with self.subTest(name):
                folder, vectors, want = self.stored(name)
                config, weights = lethe_io.load_model(folder)
                got = reference.forward(config, reference.to_torch(weights), vectors["vocab_ids"])["logits"]
                self.assertLess(largest(got[vectors["positions"]] - want), 1e-12 * largest(want))

    def test_files_of_transformers_convert_to_the_stored_model(self):
        folder, vectors, want = self.stored("two_groups")
        hf, state = mamba2.read_hf(os.path.join(folder, "hf"))
        got = plain_mamba2(hf, state, vectors["vocab_ids"])[vectors["positions"]]
        self.assertLess(largest(got - want), 1e-12 * largest(want))
        with tempfile.TemporaryDirectory() as target:
            mamba2.convert(os.path.join(folder, "hf"), target, "mamba2_two_groups")
            for name in ("config.json", "model.safetensors"):
                with open(os.path.join(folder, name), "rb") as f, open(os.path.join(target, name), "rb") as g:
                    self.assertEqual(f.read(), g.read(), name)


@unittest.skipIf(torch is None or importlib.util.find_spec("transformers") is None, "transformers is not installed")
class TransformersTest(unittest.TestCase):
    def test_equals_transformers(self):
        for name in compare.STORED:
            for dtype, bound in compare.BOUNDS.items():
                with self.subTest(name, dtype=dtype):
                    scale, plain, chunked = compare.compare_shape(compare.SHAPES[name], 2, dtype)
                    self.assertLess(max(plain, chunked), bound * scale)


if __name__ == "__main__":
    unittest.main()
