#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT's training step in bfloat16 against float32 on one core, beside the bound that its products leave, and the held-out loss.

  bench/bf16_step.py [--pairs 5] [--steps 30] [--config examples/gpt_small.json] [--loss 500] [--build build/release]

The bound: all matrix products of the step (linear layers, head, attention) at the bfloat16 rate that `trireme doctor` measures on this
machine, everything else as in the float32 step: 1 / (1 - s + s / r), where s is the products' part of the float32 step at the measured
float32 rate, and r the ratio of the rates. Runs alternate; figures are medians of the ratios. Void at a foreign load above 5 %.
The step should reach 0.85 of it. Both also train --loss N steps, and their held-out losses should be within 1 % (0: they do not).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BF16 = {"float32": "false", "bfloat16": "true"}


def train(args, bf16, steps, folder, evaluate=False):
    run = os.path.join(folder, "run")
    sets = [f"bf16.enabled={BF16[bf16]}", "checkpoint.at_end=false", "monitor.progress=false",
            f"training.eval_every={steps if evaluate else 0}"]
    command = [os.path.join(args.build, "bin", "trireme"), "train", args.config, "--nproc-per-node", "1", "--run-dir", run,
               "--steps", str(steps)]
    for s in sets:
        command += ["--set", s]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    subprocess.run(["rm", "-rf", run], check=True)
    return lines


def step_ms(lines):
    return statistics.median(line["step_ms"] for line in lines if line.get("step", 0) > 5 and "step_ms" in line)


def held_out(lines):
    for line in reversed(lines):
        if "held_out_loss" in line:
            return line["held_out_loss"]
    sys.exit("the metrics have no held-out loss")


def config_of(path):
    text = re.sub(r"(?m)(^|\s)//.*$", "", open(path).read())
    return json.loads(text)


def products(config):
    """Floating-point operations of a step's matrix products: forward, and twice that in backward; attention sees half of the scores,
    and computes its scores once more in backward."""
    m = config["model"]
    tokens = config["train_micro_batch_size_per_gpu"] * config.get("gradient_accumulation_steps", 1) * m["context"]
    weights = m["layers"] * 12 * m["width"] ** 2 + m.get("vocab", 256) * m["width"]
    scores = m["layers"] * tokens * m["context"] / 2 * m["width"]
    return 6 * weights * tokens + 2 * scores * (2 + 5)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--config", default=os.path.join(ROOT, "examples", "gpt_small.json"))
    p.add_argument("--loss", type=int, default=500)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--timeout", type=float, default=1800)
    args = p.parse_args()
    worker = os.path.join(args.build, "libexec", "trireme", "trireme-worker")
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:

        def pair():
            with load_of.Load() as load:
                rates = json.loads(subprocess.run([worker, "half-rate"], env=environment, capture_output=True, text=True, check=True).stdout)
                ms = {name: step_ms(train(args, name, args.steps, folder)) for name in BF16}
            return dict(ms, rates=rates), load.foreign

        kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
        flops = products(config_of(args.config))
        speedups, bounds, shares = [], [], []
        for k in kept:
            rate = k["rates"]["bfloat16"] / k["rates"]["float32"]
            share = flops / (k["rates"]["float32"] * 1e9) / (k["float32"] * 1e-3)
            shares.append(share)
            bounds.append(1 / (1 - share + share / rate))
            speedups.append(k["float32"] / k["bfloat16"])
        of_bound = [s / b for s, b in zip(speedups, bounds)]
        median = statistics.median
        print(f"{os.path.basename(args.config)}, one core: float32 {median(k['float32'] for k in kept):.1f} ms, bfloat16 "
              f"{median(k['bfloat16'] for k in kept):.1f} ms a step: {median(speedups):.2f} × [{min(speedups):.2f}, {max(speedups):.2f}]; "
              f"products are {100 * median(shares):.0f} % of the float32 step and {median(k['rates']['bfloat16'] / k['rates']['float32'] for k in kept):.2f} × "
              f"as fast: bound {median(bounds):.2f} ×, reached {median(of_bound):.2f} of it "
              f"(at least 0.85: {'yes' if median(of_bound) >= 0.85 else 'no'}); {load_of.verdict(foreign, thrown)}", flush=True)
        if args.loss:
            losses = {name: held_out(train(args, name, args.loss, folder, True)) for name in BF16}
            difference = losses["bfloat16"] / losses["float32"] - 1
            print(f"held-out loss after {args.loss} steps: float32 {losses['float32']:.4f}, bfloat16 {losses['bfloat16']:.4f} "
                  f"({100 * difference:+.2f} %; within 1 %: {'yes' if abs(difference) <= 0.01 else 'no'})")


if __name__ == "__main__":
    main()
