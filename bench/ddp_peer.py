#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The peer: PyTorch's DistributedDataParallel on Gloo, training the models of trireme/models.

Debian's python3-torch belongs to /usr/bin/python3 and its torchrun cannot start, so ranks find each other by env://:
  for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 /usr/bin/python3 bench/ddp_peer.py \\
      --model gpt --steps 20 & done; wait
Without RANK it is one process and no DDP. Rank 0 prints one JSON line. Same parameter names as ours, so that --init and
--dump exchange safetensors with us. Set OPENBLAS_CORETYPE and OMP_NUM_THREADS as for the other side: OpenBLAS reads them
when it is loaded.
"""
import argparse
import json
import os
import sys
import time

SHAPES = {"mlp": 64, "wide": 8, "net": 64, "gpt": 4, "recipe": 4}  # samples per rank and step


def parse():
    p = argparse.ArgumentParser(description="PyTorch DDP on Gloo with the models of trireme/models")
    p.add_argument("--model", choices=sorted(SHAPES), required=True)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--warmup", type=int, default=5, help="steps before the clock starts; part of the training")
    p.add_argument("--batch", type=int, help="samples per rank and step (mlp 64, wide 8, net 64, gpt and recipe 4)")
    p.add_argument("--optimizer", choices=["sgd", "adamw"], help="default: adamw for gpt and recipe, sgd for the others")
    p.add_argument("--lr", type=float, help="default: 0.01 for sgd, 3e-4 for adamw")
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: no clipping")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--dropout", type=float, default=0.1, help="of the recipe's network")
    p.add_argument("--untied", action="store_true", help="the GPT's head has weights of its own")
    p.add_argument("--pin", choices=["none", "rank"], default="none", help="rank: process r on the r-th allowed CPU")
    p.add_argument("--threads", type=int, default=1, help="of ATen; OpenBLAS takes OMP_NUM_THREADS")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--init", help="safetensors with the parameters to start from")
    p.add_argument("--dump", help="safetensors for the parameters after the last step")
    p.add_argument("--data", help="safetensors with input [steps, world × batch, …] and target; default: "
                   "random, fresh each step")
    p.add_argument("--timeout", type=float, default=120, help="seconds, of a collective and of the meeting of the ranks")
    return p.parse_args()


def pin(rank):
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})


args = parse()
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if args.pin == "rank":
    pin(rank)

import datetime  # noqa: E402  (after pinning: torch sizes its thread pools by the mask)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import safetensors_io  # noqa: E402


class MLP(nn.Module):
    def __init__(self, *hidden):
        super().__init__()
        sizes = [784, *hidden, 10]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 20, 5)
        self.fc1, self.fc2 = nn.Linear(2000, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.max_pool2d(x, 2).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mask = torch.ones(context, context, dtype=torch.bool).triu(1)  # no buffer: Gloo cannot broadcast bool

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(width, dim=2))
        score = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        score = score.masked_fill(self.mask[:t, :t], float("-inf")).softmax(-1)
        return self.proj((score @ v).transpose(1, 2).reshape(b, t, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(width), Attention(width, heads, context)
        self.ln2, self.mlp = nn.LayerNorm(width), FeedForward(width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, context, tied, vocab=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, context) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        if not tied:
            self.head = nn.Linear(width, vocab, bias=False)
        self.tied = tied
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight if self.tied else self.head.weight)


class BertLayer(nn.Module):
    """Post-norm, exact GELU; Q, K and V in one product, which is quicker than Hugging Face's three."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x, mask):
        b, t, width = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(width, dim=2))
        score = torch.matmul(q * (width // self.heads) ** -0.5, k.transpose(-2, -1)).add_(mask).softmax(-1)
        y = (F.dropout(score, self.dropout) @ v).transpose(1, 2).reshape(b, t, width)
        x = self.norm1(x + F.dropout(self.attended(y), self.dropout))
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), self.dropout))


class Recipe(nn.Module):
    """neuromation/ml-recipe-distributed-pytorch: BERT's encoder with heads for start, end, class and the two positions."""

    def __init__(self, layers, width, heads, dropout, vocab=30522, positions=512):
        super().__init__()
        self.dropout = dropout
        self.words, self.positions, self.types = nn.Embedding(vocab, width), nn.Embedding(positions, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.blocks = nn.ModuleList([BertLayer(width, heads, dropout) for _ in range(layers)])
        self.pooler, self.places, self.classes, self.begin, self.end = (nn.Linear(width, n) for n in (width, 2, 5, 1, 1))
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, batch):
        ids, types, seen = batch
        x = self.words(ids) + self.types(types) + self.positions.weight[:ids.shape[1]]
        x, mask = F.dropout(self.norm(x), self.dropout), (seen == 0).float().mul_(-10000)[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        start, end = self.places(x).unbind(-1)
        return (start, end, self.classes(pooled), torch.sigmoid(self.begin(pooled)).squeeze(-1),
                torch.sigmoid(self.end(pooled)).squeeze(-1))


def recipe_batch(batch, generator, length=384, question=64, vocab=30522, unknown=100, first=101, separator=102):
    """The recipe's DummyDataset."""
    ids = torch.randint(1, vocab, (batch, length), generator=generator)
    ids[(ids == first) | (ids == separator)] = unknown
    ids[:, 0], ids[:, question + 1], ids[:, -1] = first, separator, separator
    types = torch.zeros_like(ids)
    types[:, question + 2:] = 1
    zeros = torch.zeros(batch, dtype=torch.long)
    return (ids, types, torch.ones_like(ids)), (zeros, zeros + length - 1, zeros, zeros.float(), zeros.float() + 1)


def loss_of(out, target):
    if args.model != "recipe":
        return F.cross_entropy(out.view(-1, out.shape[-1]), target.reshape(-1))
    places = (F.cross_entropy(x, y, ignore_index=-1) for x, y in zip(out[:3], target[:3]))
    return sum(places) + F.mse_loss(out[3], target[3]) + F.mse_loss(out[4], target[4])


def make_model():
    if args.model == "mlp":
        return MLP(256)
    if args.model == "wide":
        return MLP(4096, 4096)  # 20 M parameters: with few samples a step, bound by communication
    if args.model == "net":
        return Net()
    if args.model == "recipe":
        return Recipe(layers=2, width=768, heads=12, dropout=args.dropout)
    return GPT(args.layers, args.width, args.heads, args.context, not args.untied)


def batches(batch):
    """Endless (input, target) of this rank."""
    if args.data:
        data = safetensors_io.load(args.data)
        rows = slice(rank * batch, (rank + 1) * batch)
        while True:
            for x, y in zip(data["input"], data["target"]):
                yield x[rows], y[rows]
    generator = torch.Generator().manual_seed(args.seed * 1000003 + rank)
    while True:
        if args.model == "recipe":
            yield recipe_batch(batch, generator)
        elif args.model == "gpt":
            ids = torch.randint(256, (batch, args.context + 1), generator=generator)
            yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        else:
            yield (torch.randn(batch, 1, 28, 28, generator=generator),
                   torch.randint(10, (batch,), generator=generator))


def main():
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if world > 1:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout))
    batch = args.batch or SHAPES[args.model]
    model = make_model()
    if args.init:
        model.load_state_dict(safetensors_io.load(args.init))
    # For a network whose step moves 155 MB of gradients, copies of them count.
    views = args.model == "recipe"
    net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views) if world > 1 else model
    kind = args.optimizer or ("adamw" if args.model in ("gpt", "recipe") else "sgd")
    # No decay for biases and norms, as ours.
    groups = [{"params": [p for n, p in model.named_parameters() if p.dim() > 1], "weight_decay": args.weight_decay},
              {"params": [p for n, p in model.named_parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    if kind == "sgd":
        optimizer = torch.optim.SGD(groups, lr=args.lr or 0.01, momentum=args.momentum)
    else:
        optimizer = torch.optim.AdamW(groups, lr=args.lr or 3e-4)

    losses, times, start, cpu = [], [], time.perf_counter(), time.process_time()
    data = batches(batch)
    for step in range(args.warmup + args.steps):
        if step == args.warmup:
            if world > 1:
                dist.barrier()
            start, cpu = time.perf_counter(), time.process_time()
        began = time.perf_counter()
        x, y = next(data)
        optimizer.zero_grad(set_to_none=args.model == "recipe")
        out = net(x)
        loss = loss_of(out, y)
        loss.backward()
        if args.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        losses.append(loss.detach())
        if step >= args.warmup:
            times.append(time.perf_counter() - began)
    if world > 1:
        dist.barrier()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu

    # The curve over all ranks; not on the clock.
    curve = torch.tensor([loss.item() for loss in losses], dtype=torch.float64)
    if world > 1:
        both = torch.tensor([cpu], dtype=torch.float64)
        dist.all_reduce(curve)
        dist.all_reduce(both)
        curve, cpu = curve / world, both.item()
    if rank == 0:
        if args.dump:
            safetensors_io.save(args.dump, dict(model.named_parameters()))
        samples = args.steps * batch * world
        line = {"model": args.model, "world": world, "samples_per_s": samples / wall, "wall_s": wall, "cpu_s": cpu,
                "step_ms": 1e3 * sorted(times)[len(times) // 2] if times else None,
                "steps": args.steps, "warmup": args.warmup, "batch": batch,
                "parameters": sum(p.numel() for p in model.parameters()), "optimizer": kind, "pin": args.pin,
                "torch": torch.__version__, "loss": curve[-1].item() if losses else None}
        if args.model == "gpt":
            line["tokens_per_s"] = line["samples_per_s"] * args.context
        if args.data:
            line["losses"] = curve.tolist()
        print(json.dumps(line), flush=True)
    if world > 1:
        leave()


def leave():
    """Ends the process without Gloo's teardown, which in torch 1.13 hangs in one run of ten when the peer has gone first.
    Rank 0 holds the store, so it goes last."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait([f"left/{r}" for r in range(1, world)], datetime.timedelta(seconds=args.timeout))
    else:
        store.set(f"left/{rank}", "1")
    sys.stdout.flush()
    os._exit(0)


main()
