#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 in plain tensor operations, named and laid out as Hugging Face's GPT2LMHeadModel: what its weights are
and what it computes, for tests that read and write such weights. Usage:
  gpt2.py make FOLDER            FOLDER/gpt2.pt, plain.pt, gpt2.safetensors, bin (a folder of files of torch.save with
                                 their index), untied.pt, and expected.pt (input, logits of both)
  gpt2.py compare PT OTHER …     exits with 0 where each OTHER (.pt, or a folder of safetensors) has PT's tensors to the bit
Exits with 77 without PyTorch."""
import collections
import json
import math
import os
import struct
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

LAYERS, WIDTH, HEADS, CONTEXT, VOCAB = 2, 8, 2, 6, 11


def weights():
    torch.manual_seed(3)
    shapes = {"transformer.wte.weight": (VOCAB, WIDTH), "transformer.wpe.weight": (CONTEXT, WIDTH)}
    for n in range(LAYERS):
        h = f"transformer.h.{n}."
        shapes.update({
            h + "ln_1.weight": (WIDTH,), h + "ln_1.bias": (WIDTH,),
            h + "attn.c_attn.weight": (WIDTH, 3 * WIDTH), h + "attn.c_attn.bias": (3 * WIDTH,),
            h + "attn.c_proj.weight": (WIDTH, WIDTH), h + "attn.c_proj.bias": (WIDTH,),
            h + "ln_2.weight": (WIDTH,), h + "ln_2.bias": (WIDTH,),
            h + "mlp.c_fc.weight": (WIDTH, 4 * WIDTH), h + "mlp.c_fc.bias": (4 * WIDTH,),
            h + "mlp.c_proj.weight": (4 * WIDTH, WIDTH), h + "mlp.c_proj.bias": (WIDTH,)})
    shapes.update({"transformer.ln_f.weight": (WIDTH,), "transformer.ln_f.bias": (WIDTH,)})
    return collections.OrderedDict((name, torch.randn(shape) * 0.5) for name, shape in shapes.items())


def logits(w, ids):
    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def layer(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    batch, length = ids.shape
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:length]
    ahead = torch.ones(length, length).triu(1).bool()
    for n in range(LAYERS):
        h = f"transformer.h.{n}."
        q, k, v = layer(norm(x, h + "ln_1"), h + "attn.c_attn").split(WIDTH, dim=2)
        q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        mixed = scores.masked_fill(ahead, -math.inf).softmax(3) @ v
        x = x + layer(mixed.transpose(1, 2).reshape(batch, length, WIDTH), h + "attn.c_proj")
        y = layer(norm(x, h + "ln_2"), h + "mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + layer(y, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["lm_head.weight"].t()


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    length = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, info in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        assert info["dtype"] == "F32", info
        begin, end = (8 + length + at for at in info["data_offsets"])
        out[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).view(info["shape"])
    return out


def read(path):
    if not os.path.isdir(path):
        return torch.load(path, weights_only=True)
    index = os.path.join(path, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_safetensors(os.path.join(path, "model.safetensors"))
    with open(index) as file:
        files = json.load(file)["weight_map"]
    shards = {name: read_safetensors(os.path.join(path, name)) for name in set(files.values())}
    assert sum(len(shard) for shard in shards.values()) == len(files)
    return {name: shards[file][name] for name, file in files.items()}


def write_bin_folder(folder, tensors):
    os.mkdir(folder)
    names, where = list(tensors), {}
    for n, part in enumerate((names[0::2], names[1::2]), 1):
        file = f"pytorch_model-{n:05}-of-00002.bin"
        torch.save(collections.OrderedDict((name, tensors[name]) for name in part), os.path.join(folder, file))
        where.update((name, file) for name in part)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": size}, "weight_map": where}, file, indent=2)


def make(folder):
    ids = torch.tensor([[1, 4, 10, 0, 7], [3, 3, 2, 9, 5]])
    tied = weights()
    write_safetensors(os.path.join(folder, "gpt2.safetensors"), tied)
    tied["lm_head.weight"] = tied["transformer.wte.weight"]
    own = weights()
    own["lm_head.weight"] = torch.randn(VOCAB, WIDTH)
    torch.save({"model": tied, "epoch": 4}, os.path.join(folder, "gpt2.pt"))
    torch.save(tied, os.path.join(folder, "plain.pt"))
    write_bin_folder(os.path.join(folder, "bin"), tied)
    torch.save(collections.OrderedDict(("module." + name, t) for name, t in own.items()),
               os.path.join(folder, "untied.pt"))
    torch.save({"input": ids, "tied": logits(tied, ids), "untied": logits(own, ids)},
               os.path.join(folder, "expected.pt"))


def compare(a, b):
    first, second = read(a), read(b)
    if os.path.isdir(b):  # a tied head is not written twice
        first.pop("lm_head.weight")
    assert set(first) == set(second), set(first) ^ set(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    if not os.path.isdir(b):
        assert second["lm_head.weight"].data_ptr() == second["transformer.wte.weight"].data_ptr()


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    for other in sys.argv[3:]:
        compare(sys.argv[2], other)
