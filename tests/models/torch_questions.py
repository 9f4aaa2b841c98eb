#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small question-answering network of PyTorch's own modules in float64, its losses and their gradients, as JSON.

torch_questions.py prints {"outputs", "losses", "gradients"}. The encoder's layers are nn.TransformerEncoderLayer, post-norm
with exact GELU, whose parameters get the names that Hugging Face's BERT has. Parameters and data are formulas, which the test
computes, too. Exits with 77 without PyTorch.
"""
import json
import math
import sys

try:
    import torch
except ImportError:
    sys.exit(77)
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, INNER, LAYERS, POSITIONS, ROWS, LENGTH, CLASSES = 23, 12, 3, 20, 2, 9, 5, 7, 5
EPSILON, GAMMA, SMOOTHING = 1e-12, 2, 0.1
torch.set_default_dtype(torch.float64)


def value(names, name, shape):
    """0.3 sin(0.7 i + the number of the name among all of them), and 1 more for a norm's weight."""
    count = math.prod(shape)
    x = 0.3 * torch.sin(0.7 * torch.arange(count) + names.index(name)).view(shape)
    return x + 1 if name.endswith("LayerNorm.weight") else x


SHAPES = {"bert.embeddings.word_embeddings.weight": (VOCAB, WIDTH), "bert.embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
          "bert.embeddings.token_type_embeddings.weight": (2, WIDTH), "bert.embeddings.LayerNorm.weight": (WIDTH,),
          "bert.embeddings.LayerNorm.bias": (WIDTH,), "bert.pooler.dense.weight": (WIDTH, WIDTH), "bert.pooler.dense.bias": (WIDTH,),
          "heads.position_outputs.weight": (2, WIDTH), "heads.position_outputs.bias": (2,), "heads.classifier.weight": (CLASSES, WIDTH),
          "heads.classifier.bias": (CLASSES,), "heads.reg_start.weight": (1, WIDTH), "heads.reg_start.bias": (1,),
          "heads.reg_end.weight": (1, WIDTH), "heads.reg_end.bias": (1,)}
for n in range(LAYERS):
    layer = f"bert.encoder.layer.{n}."
    for part in ("query", "key", "value"):
        SHAPES[layer + f"attention.self.{part}.weight"], SHAPES[layer + f"attention.self.{part}.bias"] = (WIDTH, WIDTH), (WIDTH,)
    for part, out, into in (("attention.output.dense", WIDTH, WIDTH), ("intermediate.dense", INNER, WIDTH), ("output.dense", WIDTH, INNER)):
        SHAPES[layer + part + ".weight"], SHAPES[layer + part + ".bias"] = (out, into), (out,)
    for part in ("attention.output.LayerNorm", "output.LayerNorm"):
        SHAPES[layer + part + ".weight"], SHAPES[layer + part + ".bias"] = (WIDTH,), (WIDTH,)
NAMES = sorted(SHAPES)
P = {name: value(NAMES, name, SHAPES[name]).requires_grad_() for name in NAMES}


def encode(x, padding, n):
    """One nn.TransformerEncoderLayer with our parameters in place of its own."""
    name = f"bert.encoder.layer.{n}."
    of = lambda part: P[name + part]
    packed = {f"self_attn.in_proj_{kind}": torch.cat([of(f"attention.self.{part}.{kind}") for part in ("query", "key", "value")])
              for kind in ("weight", "bias")}
    renamed = {f"{theirs}.{kind}": of(f"{ours}.{kind}") for kind in ("weight", "bias") for theirs, ours in (
        ("self_attn.out_proj", "attention.output.dense"), ("linear1", "intermediate.dense"), ("linear2", "output.dense"),
        ("norm1", "attention.output.LayerNorm"), ("norm2", "output.LayerNorm"))}
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0, activation="gelu", layer_norm_eps=EPSILON, batch_first=True)
    return torch.nn.utils.stateless.functional_call(module, {**packed, **renamed}, (x,), {"src_key_padding_mask": padding})


def network(ids, types, seen):
    x = F.embedding(ids, P["bert.embeddings.word_embeddings.weight"]) + F.embedding(types, P["bert.embeddings.token_type_embeddings.weight"])
    x = x + P["bert.embeddings.position_embeddings.weight"][:LENGTH]
    x = F.layer_norm(x, (WIDTH,), P["bert.embeddings.LayerNorm.weight"], P["bert.embeddings.LayerNorm.bias"], EPSILON)
    for n in range(LAYERS):
        x = encode(x, seen == 0, n)
    linear = lambda y, name: F.linear(y, P[name + ".weight"], P[name + ".bias"])
    pooled = torch.tanh(linear(x[:, 0], "bert.pooler.dense"))
    start, end = linear(x, "heads.position_outputs").split(1, dim=-1)
    return {"start": start.squeeze(-1), "end": end.squeeze(-1), "classes": linear(pooled, "heads.classifier"),
            "start_position": torch.sigmoid(linear(pooled, "heads.reg_start")).squeeze(-1),
            "end_position": torch.sigmoid(linear(pooled, "heads.reg_end")).squeeze(-1)}


def focal(logits, labels):
    logs = F.log_softmax(logits, dim=-1)
    return F.nll_loss((1 - logs.exp()) ** GAMMA * logs, labels)


def smoothed(logits, labels):
    """nn.KLDivLoss of the smoothed labels, but for their own entropy, which is the same for any logits."""
    target = torch.full(logits.shape, SMOOTHING / (CLASSES - 1)).scatter_(1, labels.unsqueeze(1), 1 - SMOOTHING)
    return F.kl_div(F.log_softmax(logits, dim=-1), target, reduction="batchmean") - (target * target.log()).sum(1).mean()


def squared(values, targets):
    """Over the rows that have a position."""
    return F.mse_loss(values[targets >= 0], targets[targets >= 0])


def main():
    ids = torch.arange(ROWS * LENGTH).mul(5).remainder(VOCAB).view(ROWS, LENGTH)
    seen = (torch.arange(LENGTH).unsqueeze(0) < torch.tensor([[7], [5], [7], [4], [6]])).long()
    types = (torch.arange(LENGTH).unsqueeze(0) > 2).long() * seen
    starts, ends, labels = torch.tensor([3, -1, 4, 3, -1]), torch.tensor([5, -1, 6, 3, -1]), torch.tensor([0, 4, 2, 3, 4])
    outputs = network(ids, types, seen)
    losses = {"start": F.cross_entropy(outputs["start"], starts, ignore_index=-1),
              "end": F.cross_entropy(outputs["end"], ends, ignore_index=-1),
              "start_position": squared(outputs["start_position"], starts / LENGTH),
              "end_position": squared(outputs["end_position"], ends / LENGTH),
              "cross_entropy": F.cross_entropy(outputs["classes"], labels), "focal": focal(outputs["classes"], labels),
              "smoothed": smoothed(outputs["classes"], labels)}
    total = sum(k * loss for k, loss in enumerate(losses.values(), start=1))
    gradients = torch.autograd.grad(total, [P[name] for name in NAMES])
    flat = lambda tensors: {name: x.flatten().tolist() for name, x in tensors.items()}
    print(json.dumps({"outputs": flat(outputs), "losses": {name: x.item() for name, x in losses.items()},
                      "gradients": flat(dict(zip(NAMES, gradients)))}))


main()
