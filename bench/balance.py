#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What balance gains where one rank is slow: two ranks on two cores, two CPU hogs of equal nice on the second rank's core.

  bench/balance.py [--pairs 5] [--model gpt|mlp] [--hogs 2] [--steps 18] [--build build/release]

Pairs of equal split and balance.mode=throughput alternate, on dummy data, with the same samples a step; samples/s come from
metrics.jsonl after the warm-up (in which shares settle). The figure is the median of the ratios; with n hogs of equal nice a rank has
1/(n+1) of its core, so the bound for the ratio is (1 + 1/(n+1)) / (2/(n+1)): 2.0 for two.
"""
import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = {  # configuration, micro-batch, accumulation
    "gpt": ("gpt", 4, 1, ["optimizer.params.lr=3e-4"]),
    "mlp": ("mlp", 256, 1, ['optimizer.type="SGD"', "optimizer.params.lr=0.01", "optimizer.params.momentum=0.9",
                            "optimizer.params.weight_decay=0", "model.hidden=[1024,1024]"]),
}


def with_parent():
    """In a child: end when this script does, also when it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Hogs:
    """Processes that do nothing as fast as they can, on one CPU."""

    def __init__(self, cpu, count):
        self.cpu, self.count = cpu, count

    def __enter__(self):
        self.procs = [subprocess.Popen(["taskset", "-c", str(self.cpu), sys.executable, "-c", "while True: pass"], preexec_fn=with_parent)
                      for _ in range(self.count)]
        time.sleep(0.2)
        return self

    def __exit__(self, *_):
        for p in self.procs:
            p.kill()
        for p in self.procs:
            p.wait()


def train(args, cpus, folder, balanced):
    config, micro, accumulation, sets = MODELS[args.model]
    run = os.path.join(folder, f"{'balanced' if balanced else 'equal'}-{time.time_ns()}")
    sets = sets + ['data.type="dummy"', f"train_micro_batch_size_per_gpu={micro}", f"gradient_accumulation_steps={accumulation}",
                   'scheduler.type="constant"', "scheduler.params.warmup_num_steps=0", f"training.steps={args.steps}", "training.epochs=0",
                   "training.eval_every=0", "checkpoint.every=0", "checkpoint.at_end=false", "monitor.progress=false"]
    if balanced:
        sets += ["balance.mode=throughput", f"balance.every={args.every}"]
    command = [os.path.join(args.build, "bin", "trireme"), "train", os.path.join(ROOT, "examples", config + ".json"), "--nproc-per-node", "2",
               "--cpu-binding", f"{cpus[0]}:{cpus[1]}", "--run-dir", run]
    for s in sets:
        command += ["--set", s]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=args.timeout, preexec_fn=with_parent)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    steps = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl")) if '"step_ms"' in line]
    samples = steps[-1]["samples_per_s"] * steps[-1]["step_ms"] / 1e3
    steady = steps[args.warmup:]
    shares = f"{steps[-1]['samples_rank0']:.0f}/{steps[-1]['samples_rank1']:.0f}" if balanced else None
    return samples * len(steady) / (sum(s["step_ms"] for s in steady) / 1e3), shares


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--model", choices=sorted(MODELS), default="gpt")
    p.add_argument("--hogs", type=int, default=2)
    p.add_argument("--steps", type=int, default=18)
    p.add_argument("--warmup", type=int, default=9)
    p.add_argument("--every", type=int, default=3)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--timeout", type=float, default=1200)
    args = p.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        sys.exit("two CPUs are needed")
    rates, ratios, shares = {False: [], True: []}, [], None
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        for pair in range(args.pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            for balanced in order:
                with Hogs(cpus[1], args.hogs):
                    rate, dealt = train(args, cpus, folder, balanced)
                rates[balanced].append(rate)
                shares = dealt or shares
            ratios.append(rates[True][-1] / rates[False][-1])
            print(f"pair {pair + 1}: equal {rates[False][-1]:.2f}, balanced {rates[True][-1]:.2f} samples/s ({shares}), ratio {ratios[-1]:.2f}",
                  flush=True)
    print(f"{args.model}, 2 ranks, {args.hogs} hogs on rank 1's core: equal split {statistics.median(rates[False]):.2f} samples/s, balanced "
          f"{statistics.median(rates[True]):.2f} with {shares}; ratio {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")


if __name__ == "__main__":
    main()
