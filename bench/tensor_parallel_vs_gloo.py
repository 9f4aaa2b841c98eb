#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT over two tensor-parallel processes: `trireme train` against the same layers in PyTorch over Gloo.

  bench/tensor_parallel_vs_gloo.py [--pairs 5] [--steps 12] [--batch 8] [--build build/release]

Column- and row-parallel linear layers as Megatron-LM has them, whole heads on each rank, two all_reduces a block forward and two
backward; 6 blocks of width 384, 256 tokens, AdamW, no dropout. A pair runs ours and the peer one after the other, each process on a
core of its own with one thread and the same BLAS settings; the ratio is the median over pairs, and its bound what it would be if our
ranks never waited for each other. A pair under a foreign load above 5 % is
measured again. Needs Debian's python3-torch for the peer.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS, WIDTH, HEADS, CONTEXT, WARM = 6, 384, 6, 256, 3


def peer(args):
    rank, ranks = int(os.environ["RANK"]), 2
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.functional as F
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")

    class CopyTo(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, dy):
            dy = dy.contiguous()
            dist.all_reduce(dy)
            return dy

    class ReduceFrom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.contiguous()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.up = nn.Linear(WIDTH, 3 * WIDTH // ranks), nn.Linear(WIDTH, 4 * WIDTH // ranks)
            self.proj = nn.Linear(WIDTH // ranks, WIDTH, bias=False)
            self.down = nn.Linear(4 * WIDTH // ranks, WIDTH, bias=False)
            self.proj_bias, self.down_bias = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
            self.mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)

        def forward(self, x):
            b, t, _ = x.shape
            heads, each = HEADS // ranks, WIDTH // HEADS
            q, k, v = (y.view(b, t, heads, each).transpose(1, 2) for y in self.qkv(CopyTo.apply(self.ln1(x))).chunk(3, dim=2))
            score = (q @ k.transpose(-2, -1)) * each ** -0.5
            score = score.masked_fill(self.mask, float("-inf")).softmax(-1)
            y = self.proj((score @ v).transpose(1, 2).reshape(b, t, heads * each))
            x = x + ReduceFrom.apply(y) + self.proj_bias
            y = self.down(F.gelu(self.up(CopyTo.apply(self.ln2(x))), approximate="tanh"))
            return x + ReduceFrom.apply(y) + self.down_bias

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks, self.ln_f = nn.ModuleList([Block() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, 256, bias=False)

        def forward(self, ids):
            x = self.wte(ids) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln_f(x))

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ids = torch.randint(256, (args.batch, CONTEXT + 1))
    times = []
    for _ in range(WARM + args.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        out = model(ids[:, :-1])
        F.cross_entropy(out.reshape(-1, 256), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps({"step_ms": 1e3 * statistics.median(times[WARM:])}))


def run_peer(args):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    command = ["/usr/bin/python3", os.path.abspath(__file__), "--peer", "--steps", str(args.steps), "--batch", str(args.batch)]
    procs = [subprocess.Popen(command, env=dict(env, RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for r in range(2)]
    outs = [p.communicate(timeout=600) for p in procs]
    for p, (_, err) in zip(procs, outs):
        if p.returncode != 0:
            sys.exit(f"the peer failed:\n{err}")
    return json.loads(outs[0][0].splitlines()[-1])["step_ms"]


def run_ours(args, folder):
    run = os.path.join(folder, str(time.time_ns()))
    sets = ['data.type="dummy"', f"model.layers={LAYERS}", f"model.width={WIDTH}", f"model.heads={HEADS}", f"model.context={CONTEXT}",
            "model.dropout=0", "model.tied_head=false", f"train_batch_size={args.batch}", f"train_micro_batch_size_per_gpu={args.batch}",
            "gradient_accumulation_steps=1", "gradient_clipping=0", 'scheduler.type="constant"', "scheduler.params.warmup_num_steps=0",
            f"training.steps={WARM + args.steps}", "training.epochs=0", "training.eval_every=0", "checkpoint.every=0",
            "checkpoint.at_end=false", "monitor.progress=false", "parallelism.tp=2"]
    command = [os.path.join(args.build, "bin", "trireme"), "train", os.path.join(ROOT, "examples", "gpt.json"), "--nproc-per-node", "2",
               "--run-dir", run]
    for s in sets:
        command += ["--set", s]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"ours failed:\n{done.stdout}")
    steps = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl")) if '"step_ms"' in line]
    return (statistics.median(s["step_ms"] for s in steps[WARM:]),
            statistics.median(s["step_ms"] - s["exposed_comm_ms"] for s in steps[WARM:]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.peer:
        return peer(args)
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:

        def pair():
            with load_of.Load() as ours:
                mine, busy = run_ours(args, folder)
            with load_of.Load() as theirs:
                their = run_peer(args)
            return ({"ours": mine, "busy": busy, "peer": their, "ours_cpu": ours.cpu, "peer_cpu": theirs.cpu},
                    max(ours.foreign, theirs.foreign))

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
    of = {key: [k[key] for k in kept] for key in kept[0]}
    ratios = [t / o for o, t in zip(of["ours"], of["peer"])]
    bounds = [t / o for o, t in zip(of["busy"], of["peer"])]
    print(f"# tp=2, {args.pairs} alternating pairs, OPENBLAS_CORETYPE={os.environ.get('OPENBLAS_CORETYPE', '(not set)')}")
    print(f"ours {statistics.median(of['ours']):.1f} ms a step ({statistics.median(of['ours_cpu']):.1f} CPU s a run)  PyTorch over Gloo "
          f"{statistics.median(of['peer']):.1f} ms ({statistics.median(of['peer_cpu']):.1f} CPU s)  ratio {statistics.median(ratios):.2f} "
          f"[{min(ratios):.2f}, {max(ratios):.2f}] (bound, without ours' exposed communication: {statistics.median(bounds):.2f})  "
          f"{load_of.verdict(foreign, thrown)}")


if __name__ == "__main__":
    main()
