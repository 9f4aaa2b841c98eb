#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints torch_gpt.json: 20 clipped steps of SGD of small transformers, made of PyTorch's own modules on one process in
float64, with a weight for each token. Weights and data are formulas, which the test computes, too:

    python3 tests/layers/tensor_parallel/torch_gpt.py > tests/layers/tensor_parallel/torch_gpt.json
"""
import json
import math

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, HIDDEN, CONTEXT, BATCH, TIME, BLOCKS, STEPS = 29, 24, 12, 50, 8, 3, 7, 2, 20
RATE, LIMIT, IGNORED = 0.2, 0.4, -100
torch.set_default_dtype(torch.float64)


class Attention(nn.Module):
    def __init__(self, kv_heads, bias):
        super().__init__()
        self.kv_heads, self.d = kv_heads, WIDTH // HEADS
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * kv_heads) * self.d, bias=bias)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x):
        b, t, _ = x.shape
        kv = self.kv_heads * self.d
        q, k, v = self.qkv(x).split([WIDTH, kv, kv], dim=2)
        heads = lambda y, n: y.view(b, t, n, self.d).transpose(1, 2)
        q, k, v = heads(q, HEADS), heads(k, self.kv_heads), heads(v, self.kv_heads)
        k, v = (y.repeat_interleave(HEADS // self.kv_heads, dim=1) for y in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(self.d)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        out = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, WIDTH))


class Gelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwiGlu(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up, self.down = nn.Linear(WIDTH, 2 * HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, kv_heads, swiglu):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = Attention(kv_heads, not swiglu)
        self.mlp = SwiGlu() if swiglu else Gelu()

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    def __init__(self, kv_heads, swiglu, tied):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(kv_heads, swiglu) for _ in range(BLOCKS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def formula(names, shape, index):
    """Parameter number `index` in the order of names."""
    n = math.prod(shape)
    wave = torch.sin(torch.arange(n) * 0.7 + torch.arange(n) ** 2 * 0.011 + 1.3 * index)
    name = names[index]
    norm = name.split(".")[-2].startswith("ln")
    return (wave * (0.1 if norm else 0.25) + (1.0 if norm and name.endswith("weight") else 0.0)).view(shape)


def batch(step):
    place = torch.arange(BATCH * TIME) + 1000 * step
    ids = ((place * 7 + place ** 2 * 3) % VOCAB).view(BATCH, TIME)
    target = ((place * 5 + place ** 2 + 2) % VOCAB).view(BATCH, TIME)
    target[step % BATCH, step % TIME] = IGNORED
    weight = ((place * 11 + step) % 4).to(torch.float64).view(BATCH, TIME)  # some tokens weigh nothing
    return ids, target, weight


def run(kv_heads, swiglu, tied, smoothing):
    model = Gpt(kv_heads, swiglu, tied)
    parameters = dict(sorted(model.named_parameters()))
    names = list(parameters)
    with torch.no_grad():
        for i, name in enumerate(names):
            parameters[name].copy_(formula(names, parameters[name].shape, i))
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, norms = [], []
    for step in range(STEPS):
        ids, target, weight = batch(step)
        each = F.cross_entropy(model(ids).view(-1, VOCAB), target.view(-1), ignore_index=IGNORED,
                               label_smoothing=smoothing, reduction="none")
        counted = weight.view(-1) * (target.view(-1) != IGNORED)
        loss = (each * weight.view(-1)).sum() / counted.sum()
        sgd.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), LIMIT)))
        losses.append(float(loss))
        sgd.step()
    marks = {}
    for name, p in parameters.items():
        flat = p.detach().reshape(-1)
        marks[name] = [float(flat.sum()), float(flat @ torch.cos(torch.arange(flat.numel()) * 0.9))]
    return {"kv_heads": kv_heads, "swiglu": swiglu, "tied": tied, "smoothing": smoothing, "losses": losses,
            "norms": norms, "marks": marks}


if __name__ == "__main__":
    runs = [run(12, False, False, 0.0), run(12, False, True, 0.1), run(2, True, False, 0.0), run(1, False, False, 0.1),
            run(6, True, True, 0.0)]
    print(json.dumps({"torch": torch.__version__, "runs": runs}, indent=1))
