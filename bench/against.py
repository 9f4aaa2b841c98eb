#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of Trireme against each other: is the new one as fast as the old one?

  bench/against.py OLD NEW [--what small,large,mlp,zero3,gpt] [--pairs 5] [--within 2] [--json FILE]

OLD and NEW are build folders (build/release of two checkouts). The builds alternate, each first in turn; a ratio is NEW's time over OLD's, so
below 1 is faster, and its median over the pairs is compared with --within per cent. small and large are all_reduce of 4 bytes and 1 MiB
between two processes; mlp, zero3 (GPT under ZeRO stage 3) and gpt are steps of training on two ranks, with their CPU seconds. A pair under
a foreign load above 5 % is measured again, and where that does not help the row is void. Ends with 1 if a row that is not void is slower
than that.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load as load_of  # noqa: E402
import training_vs_ddp as bench  # noqa: E402

BYTES = {"small": "4", "large": "1M"}
MODELS = {"mlp": ("mlp", []), "zero3": ("gpt", ["zero_optimization.stage=3"]), "gpt": ("gpt", [])}


def collective(build, what, folder):
    """Seconds of a call."""
    path = os.path.join(folder, "rows.jsonl")
    command = [os.path.join(build, "bin", "trireme"), "bench", "all_reduce", "--nproc-per-node", "2", "--backend", "local",
               "-b", BYTES[what], "-e", BYTES[what], "--json", path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    with open(path) as file:
        row = json.loads(file.readlines()[-1])
    os.remove(path)
    return row["time_us"] * 1e-6


def training(build, what, folder):
    """Seconds of a sample."""
    model, sets = MODELS[what]
    before = bench.OPTIMIZER[model]
    bench.OPTIMIZER[model] = before + sets
    try:
        rates, _ = bench.run_ours(argparse.Namespace(build=build, timeout=900), model, 2, folder)
    finally:
        bench.OPTIMIZER[model] = before
    return 1 / rates[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old", metavar="OLD")
    p.add_argument("new", metavar="NEW")
    p.add_argument("--what", default=",".join([*BYTES, *MODELS]))
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--within", type=float, default=2, help="per cent")
    p.add_argument("--json")
    args = p.parse_args()
    wanted = args.what.split(",")
    for build in (args.old, args.new):
        if not os.access(os.path.join(build, "bin", "trireme"), os.X_OK):
            sys.exit(f"{build} has no bin/trireme: name the build folders, such as build/release")
    for what in wanted:
        if what not in BYTES and what not in MODELS:
            p.error(f"--what: there is no '{what}', but {', '.join([*BYTES, *MODELS])}")
    out = open(args.json, "w") if args.json else None
    slower = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        for what in wanted:
            measure = collective if what in BYTES else training
            turn = [0]

            def pair():
                figures, foreign = {}, 0.0
                builds = [("old", args.old), ("new", args.new)]
                turn[0] += 1
                for who, build in builds if turn[0] % 2 else reversed(builds):
                    with load_of.Load() as load:
                        figures[who] = measure(build, what, folder)
                    figures[who + "_cpu"] = load.cpu
                    foreign = max(foreign, load.foreign)
                return figures, foreign

            kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
            old, new, old_cpu, new_cpu = ([k[key] for k in kept] for key in ("old", "new", "old_cpu", "new_cpu"))
            ratios = [n / o for o, n in zip(old, new)]
            cpu = statistics.median(n / o for o, n in zip(old_cpu, new_cpu))
            ratio, void = statistics.median(ratios), foreign > load_of.FOREIGN
            fits = ratio <= 1 + args.within / 100
            if not fits and not void:
                slower.append(what)
            print(f"{what:6} old {statistics.median(old):.4g} s, new {statistics.median(new):.4g} s; ratio {ratio:.3f} [{min(ratios):.3f}, "
                  f"{max(ratios):.3f}], CPU {cpu:.3f}; {'' if fits else 'not '}within {args.within:g} %; {load_of.verdict(foreign, thrown)}",
                  flush=True)
            if out:
                out.write(json.dumps({"what": what, "old": old, "new": new, "ratio": ratio, "cpu_ratio": cpu, "void": void}) + "\n")
                out.flush()
    if slower:
        sys.exit(f"slower than {args.within:g} %: {', '.join(slower)}")


if __name__ == "__main__":
    main()
