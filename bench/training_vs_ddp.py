#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed: ours against PyTorch DDP on Gloo, two processes each, and against two of our own ranks that do not talk.

  bench/training_vs_ddp.py [--models mlp,wide,net,gpt] [--pairs 5] [--build build/release] [--json FILE]

A pair runs ours and the peer one after the other, on dummy data that is fresh each step, with the same BLAS settings; the ratio is the
median over pairs. The peer runs as it does best: unpinned and pinned in the first pair, then the better of both. For the third figure
two independent one-process runs of ours share the machine, and our two ranks are compared with the sum of their rates. CPU seconds
stand beside wall; a pair under a foreign load above 5 % is measured again, and where that does not help the row is void. Needs Debian's python3-torch for the peer.
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
STEPS = {"mlp": (3000, 300), "wide": (100, 10), "net": (120, 10), "gpt": (24, 4)}  # steps of a run, of which warm-up
BATCH = {"mlp": 64, "wide": 8, "net": 64, "gpt": 4}
OPTIMIZER = {
    "mlp": ['optimizer.type="SGD"', "optimizer.params.lr=0.01", "optimizer.params.momentum=0.9", "optimizer.params.weight_decay=0"],
    "wide": ["model.hidden=[4096,4096]", 'optimizer.type="SGD"', "optimizer.params.lr=0.01", "optimizer.params.momentum=0.9",
             "optimizer.params.weight_decay=0"],
    "net": ['optimizer.type="SGD"', "optimizer.params.lr=0.01", "optimizer.params.momentum=0.9", "optimizer.params.weight_decay=0"],
    "gpt": ["optimizer.params.lr=3e-4"],
}


def our_command(args, model, ranks, folder, tag):
    steps, _ = STEPS[model]
    sets = [
        'data.type="dummy"', f"train_micro_batch_size_per_gpu={BATCH[model]}", "gradient_accumulation_steps=1", "gradient_clipping=0",
        'scheduler.type="constant"', "scheduler.params.warmup_num_steps=0", f"training.steps={steps}", "training.epochs=0",
        "training.eval_every=0", "checkpoint.every=0", "checkpoint.at_end=false", "monitor.progress=false"] + OPTIMIZER[model]
    command = [os.path.join(args.build, "bin", "trireme"), "train", os.path.join(ROOT, "examples", {"wide": "mlp"}.get(model, model) + ".json"),
               "--nproc-per-node", str(ranks), "--run-dir", os.path.join(folder, tag)]
    for s in sets:
        command += ["--set", s]
    return command


def rate_of(metrics, model):
    warm = STEPS[model][1]
    times = [json.loads(line)["step_ms"] for line in open(metrics) if '"step_ms"' in line]
    samples = [json.loads(line) for line in open(metrics) if '"step_ms"' in line][-1]
    per_step = samples["samples_per_s"] * samples["step_ms"] / 1e3
    return per_step * len(times[warm:]) / (sum(times[warm:]) / 1e3)


def exposed_of(metrics, model):
    """Exposed communication as a part of the step, after the warm-up."""
    steps = [json.loads(line) for line in open(metrics) if '"step_ms"' in line][STEPS[model][1]:]
    return sum(s["exposed_comm_ms"] for s in steps) / sum(s["step_ms"] for s in steps)


def run_ours(args, model, ranks, folder, copies=1):
    """Rates of `copies` runs at the same time."""
    tags = [f"{model}-{time.time_ns()}-{i}" for i in range(copies)]
    procs = []
    for i, tag in enumerate(tags):
        command = our_command(args, model, ranks, folder, tag)
        if copies > 1:
            command = ["taskset", "-c", str(sorted(os.sched_getaffinity(0))[i])] + command
        procs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for p in procs:
        out, _ = p.communicate(timeout=args.timeout)
        if p.returncode != 0:
            sys.exit(f"ours failed ({' '.join(map(str, p.args))}):\n{out}")
    files = [os.path.join(folder, tag, "metrics.jsonl") for tag in tags]
    return [rate_of(f, model) for f in files], [exposed_of(f, model) for f in files]


def run_peer(args, model, pin):
    steps, warm = STEPS[model]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    procs = [subprocess.Popen(["/usr/bin/python3", os.path.join(ROOT, "bench", "ddp_peer.py"), "--model", model, "--steps", str(steps),
                               "--warmup", str(warm), "--batch", str(BATCH[model]), "--pin", pin],
                              env=dict(env, RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(2)]
    outs = [p.communicate(timeout=args.timeout) for p in procs]
    for p, (out, err) in zip(procs, outs):
        if p.returncode != 0:
            sys.exit(f"the peer failed:\n{err}")
    line = [x for x in outs[0][0].splitlines() if x.startswith("{")][-1]
    return json.loads(line)["samples_per_s"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="mlp,wide,net,gpt")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--json")
    p.add_argument("--timeout", type=float, default=900)
    p.add_argument("--no-peer", action="store_true", help="only the two independent runs")
    p.add_argument("--no-independent", action="store_true")
    args = p.parse_args()
    out = open(args.json, "w") if args.json else None
    print(f"# two processes each; OPENBLAS_CORETYPE={os.environ.get('OPENBLAS_CORETYPE', '(not set)')}; samples/s, median of {args.pairs} "
          "alternating pairs")
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        for model in args.models.split(","):
            state = {"pin": None}

            def pair():
                figures, foreign = {}, []
                with load_of.Load() as load:
                    rates, exposed = run_ours(args, model, 2, folder)
                figures.update(ours=rates[0], exposed=exposed[0], ours_cpu=load.cpu)
                foreign.append(load.foreign)
                if not args.no_peer:
                    if state["pin"] is None:
                        both = {how: run_peer(args, model, how) for how in ("none", "rank")}
                        state["pin"] = max(both, key=both.get)
                    with load_of.Load() as load:
                        figures["peer"] = run_peer(args, model, state["pin"])
                    figures["peer_cpu"] = load.cpu
                    foreign.append(load.foreign)
                if not args.no_independent:
                    with load_of.Load() as load:
                        figures["alone"] = sum(run_ours(args, model, 1, folder, copies=2)[0])
                    foreign.append(load.foreign)
                return figures, max(foreign)

            kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
            of = {key: [k[key] for k in kept] for key in kept[0]}
            ours, exposures, pin = of["ours"], of["exposed"], state["pin"]
            peer, alone = of.get("peer", []), of.get("alone", [])
            ratios, efficiency = [o / t for o, t in zip(ours, peer)], [o / t for o, t in zip(ours, alone)]
            cpu = [sum(of["ours_cpu"]), sum(of.get("peer_cpu", []))]
            row = {"model": model, "ours": statistics.median(ours), "foreign_load": foreign, "thrown_away": thrown, "void": foreign > load_of.FOREIGN,
                   "ours_cpu_s": cpu[0] / args.pairs, "exposed_comm": statistics.median(exposures)}
            text = f"{model:4}  ours {row['ours']:10.1f}  (CPU {row['ours_cpu_s']:.1f} s a run, exposed communication {100 * row['exposed_comm']:.1f} %)"
            if ratios:
                row.update(peer=statistics.median(peer), ratio=statistics.median(ratios), ratios=ratios, peer_pin=pin,
                           peer_cpu_s=cpu[1] / args.pairs)
                text += (f"  PyTorch DDP {row['peer']:10.1f} ({'pinned' if pin == 'rank' else 'unpinned'}, CPU {row['peer_cpu_s']:.1f} s)"
                         f"  ratio {row['ratio']:.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")
            if efficiency:
                row.update(independent=statistics.median(alone), efficiency=statistics.median(efficiency))
                text += f"  of two independent runs {row['efficiency']:.2f}"
            text += "  " + load_of.verdict(foreign, thrown)
            print(text, flush=True)
            if out:
                out.write(json.dumps(row) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
