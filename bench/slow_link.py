#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What compression and averaging are worth on a slow link: the GPT of examples/gpt.json at one sequence a rank, on two hosts (network
namespaces joined by a veth that carries --rate each way), against plain data parallelism over the same link.

  bench/slow_link.py [--rate 100mbit] [--pairs 5] [--kinds int8,topk,sign,powersgd,diloco,...] [--build DIR] [--set KEY=VALUE ...]
  bench/slow_link.py --loss 1000 [...]      # held-out loss after so many steps, each kind against plain: on this host, as the link changes
                                            # no bit of it; but for auto, which chooses by the link and so runs over it

A kind may carry keys of its own: topk:compression.density=0.05:compression.start_step=50.

Each pair runs plain and every kind one after the other; a figure is the median of the ratios of steps per second, the first steps of a run
(in which everybody travels as it is) left out and whole periods counted. A pair under a foreign load above 5 % is measured again. Wants root.
"""
import argparse
import itertools
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hybrid_vs_gloo as net  # noqa: E402
import load as load_of  # noqa: E402
import training_vs_ddp as bench  # noqa: E402

PERIOD = 16
WARM = 3  # steps of a run that do not count
KINDS = {
    "plain": [],
    "int8": ["compression.type=int8"],
    "sign": ["compression.type=sign"],
    "topk": ["compression.type=topk", "gradient_clipping=0"],
    "powersgd": ["compression.type=powersgd", "compression.rank=4"],
    "auto": ["compression.type=auto", "gradient_clipping=0"],
    "local_sgd": ["averaging.type=local_sgd", f"averaging.period={PERIOD}"],
    "diloco": ["averaging.type=diloco", f"averaging.period={PERIOD}"],
    "diloco+int8": ["averaging.type=diloco", f"averaging.period={PERIOD}", "averaging.compression=int8"],
    "parameter_server": ["comm.strategy=parameter_server"],
    "broadcast_parameters": ["comm.strategy=broadcast_parameters"],
}
BASE = ["train_micro_batch_size_per_gpu=1", "gradient_accumulation_steps=1", "monitor.progress=false"]


def warm_of(kind):
    return WARM + (6 if kind.split(":")[0] == "auto" else 0)  # each codec once, and the choice


def steps_of(kind):
    name = kind.split(":")[0]
    return warm_of(kind) + (2 * PERIOD if "averaging" in "".join(KINDS[name]) else 6 if name in ("plain", "parameter_server", "broadcast_parameters") else 16)


def command_of(args, kind, folder, sets):
    command = [os.path.join(args.build, "bin", "trireme"), "train", os.path.join(bench.ROOT, "examples", "gpt.json"), "--run-dir", folder]
    name, *own = kind.split(":")
    for s in BASE + KINDS[name] + own + sets + args.set:
        command += ["--set", s]
    return command


def run_on_hosts(args, hosts, kind, port, folder, sets):
    """Two ranks as torchrun on each host would start them; the lines of the run's metrics."""
    secret = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(secrets.token_hex(32))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "TRIREME_HOST_ID", "SLURM_", "OMPI_", "PMI"))}
    env.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", MASTER_ADDR=hosts.address(0), MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="slow_link",
               TRIREME_SECRET_FILE=secret, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    run = os.path.join(folder, f"{kind}-{port}")
    command = command_of(args, kind, run, ["comm.backend=gloo"] + sets)
    cpus, ranks = sorted(os.sched_getaffinity(0)), []
    try:
        for rank in range(2):

            def prepare(cpu=cpus[rank % len(cpus)]):
                net.with_parent()
                os.sched_setaffinity(0, {cpu})

            ranks.append(subprocess.Popen(hosts.on(rank, *command), env=dict(env, RANK=str(rank), LOCAL_RANK="0", GROUP_RANK=str(rank)),
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=prepare))
        for rank in ranks:
            out, _ = rank.communicate(timeout=args.timeout)
            if rank.returncode != 0:
                sys.exit(f"slow_link: {kind} failed:\n{out}")
            for line in out.splitlines():
                if "gradients travel as auto: " in line:  # what it chose; rank 0 says it
                    print(f"  {line}", flush=True)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    return metrics_of(run)


def metrics_of(run):
    return [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]


def sets_of(steps, eval_batches):
    return [f"training.steps={steps}", "training.eval_every=0", f"training.eval_batches={eval_batches}", "checkpoint.every=0",
            "checkpoint.at_end=false"]


def seconds_a_step(kind, lines):
    times = [line["step_ms"] for line in lines if "step_ms" in line]
    return sum(times[warm_of(kind):]) / len(times[warm_of(kind):]) / 1e3


def speed(args, kinds):
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        hosts = net.Hosts(2, args.rate, None)
        ports = itertools.count(net.PORT, 10)

        def pair():
            figures, foreign = {}, 0.0
            for kind in kinds:
                with load_of.Load() as load:
                    figures[kind] = seconds_a_step(kind, run_on_hosts(args, hosts, kind, next(ports), folder, sets_of(steps_of(kind), 1)))
                foreign = max(foreign, load.foreign)
            return figures, foreign

        try:
            kept, foreign, thrown = load_of.quiet_pairs(args.pairs, pair)
        finally:
            hosts.close()
    per_step = {kind: [k[kind] for k in kept] for kind in kinds}
    print(f"GPT, one sequence a rank, two hosts at {args.rate}, {args.pairs} pairs; plain: {statistics.median(per_step['plain']):.2f} s a step")
    for kind in kinds[1:]:
        ratios = [p / k for p, k in zip(per_step["plain"], per_step[kind])]
        print(f"  {kind:20} {statistics.median(per_step[kind]):6.3f} s a step   {statistics.median(ratios):6.2f} x plain"
              f"  [{min(ratios):.2f}, {max(ratios):.2f}]")
    print("  " + load_of.verdict(foreign, thrown))


def run_here(args, kind, folder, sets):
    """Two processes of this host; the lines of the run's metrics."""
    run = os.path.join(folder, kind)
    done = subprocess.run(command_of(args, kind, run, sets) + ["--nproc-per-node", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=args.timeout)
    if done.returncode:
        sys.exit(f"slow_link: {kind} failed:\n{done.stdout}")
    return metrics_of(run)


def loss(args, kinds):
    losses = {}
    chooses = [kind for kind in kinds if kind.split(":")[0] == "auto"]
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        hosts = net.Hosts(2, args.rate, None) if chooses else None
        ports = itertools.count(net.PORT, 10)
        try:
            for kind in kinds:
                sets = sets_of(args.loss, 200)
                lines = run_on_hosts(args, hosts, kind, next(ports), folder, sets) if kind in chooses else run_here(args, kind, folder, sets)
                losses[kind] = [line["held_out_loss"] for line in lines if "held_out_loss" in line][-1]
                print(f"  {kind:20} held-out loss {losses[kind]:.4f} after {args.loss} steps   "
                      f"{100 * (losses[kind] / losses[kinds[0]] - 1):+.2f} %", flush=True)
        finally:
            if hosts:
                hosts.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rate", default="100mbit")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--kinds", default="int8,topk,powersgd,diloco")
    p.add_argument("--loss", type=int, default=0)
    p.add_argument("--build", default=os.path.join(bench.ROOT, "build", "release"))
    p.add_argument("--timeout", type=float, default=1800)
    p.add_argument("--set", action="append", default=[])
    args = p.parse_args()
    kinds = ["plain"] + [k for k in args.kinds.split(",") if k != "plain"]
    for kind in kinds:
        if kind.split(":")[0] not in KINDS:
            sys.exit(f"slow_link: there is no kind '{kind}': take some of {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() != 0 and (not args.loss or any(kind.split(":")[0] == "auto" for kind in kinds)):
        print("slow_link: skipped: network namespaces want root")
    elif args.loss:
        loss(args, kinds)
    else:
        speed(args, kinds)


if __name__ == "__main__":
    main()
