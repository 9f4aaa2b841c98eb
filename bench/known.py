#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long until a launcher says that a rank is dead, that a host is silent, and that a rank hangs.

  bench/known.py [--times 5] [--busy 4] [--minutes 0] [--build build/release]

Death: from SIGKILL of a rank to the line that names it; bound 1 s. Silent host: from the cut of a link between two network namespaces to the
line that names the node; bound 5 s (wants root). Hang: from SIGSTOP of a rank of `trireme train` to the line that names it, beyond the limit
of 2 s; bound 2 s. First on the machine as it is, then with --busy processes a core that compute for ever: there three times the bounds.
With --minutes, the busy machine then has such a training job and such a job of two hosts for as long, and nobody is to be accused (at
--times 0 this alone). Medians and the worst. Foreign load is of the quiet rounds alone; above 5 % they are void.
"""
import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job  # noqa: E402
import load as load_of  # noqa: E402

HANG_LIMIT = 2


def death(args, folder):
    with job.Job([job.trireme(args.build), "run", "--nproc-per-node", "2", "sleep", "1000"]) as run:
        victim = run.rank(1)
        time.sleep(2)  # the foreign load of some milliseconds says nothing
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        return run.wait_for("Signal 9 (SIGKILL)") - begin


def training(args, folder):
    words = [job.trireme(args.build), "train", job.tiny_config(folder), "--nproc-per-node", "2", "--run-dir", tempfile.mkdtemp(dir=folder) + "/run",
             "--steps", "1000000", "--hang-timeout", str(HANG_LIMIT), "--set", "checkpoint.at_end=false", "--set", "steps_per_print=50"]
    return job.Job(words, {"TRIREME_FAILPOINTS": "train.step=sleep(20)"})


def hang(args, folder):
    with training(args, folder) as run:
        run.wait_for("50/1000000", 120)
        begin = time.monotonic()
        os.kill(run.rank(1), signal.SIGSTOP)
        return run.wait_for("hangs in step", 120) - begin - HANG_LIMIT


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ip {' '.join(words)}: {done.stderr}")


@contextlib.contextmanager
def two_hosts(args, folder):
    """Two launchers with a worker each that have met, and what makes the second host silent."""
    names = [f"trireme-known-{os.getpid()}-{h}" for h in (0, 1)]
    secret = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write("5a" * 32 + "\n")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for h, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.0.{h + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")

        def launcher(h):
            return job.Job(["ip", "netns", "exec", names[h], job.trireme(args.build), "run", "--nnodes=2", f"--node-rank={h}",
                            "--master-addr=10.77.0.1", "sh", "-c", "echo ready; exec sleep 100000"], {"TRIREME_SECRET_FILE": secret})

        with launcher(0) as zero, launcher(1) as one:
            for host in (zero, one):
                host.wait_for("ready")
            # The other end keeps its carrier's word: nothing says so to the first host but silence.
            yield zero, one, lambda: ip("-n", names[1], "addr", "flush", "dev", "eth0")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def silent_host(args, folder):
    with two_hosts(args, folder) as (zero, _, cut):
        begin = time.monotonic()
        cut()
        return zero.wait_for("is gone", 120) - begin


def nobody_accused(args, folder):
    """What was said in so many minutes that should not have been, and the steps that the training job did."""
    with training(args, folder) as run, two_hosts(args, folder) as (zero, one, _):
        run.wait_for("50/1000000", 120)
        time.sleep(60 * args.minutes)
        said = [line for of in (run, zero, one) for _, line in list(of.lines)]
        done = [line for _, line in list(run.lines) if "/1000000" in line]
        alarms = [line for line in said if "hang" in line or "gone" in line or "error" in line or "again" in line]
        ended = [of.process.args[-1] for of in (run, zero, one) if of.process.poll() is not None]
    return alarms + [f"ended: {words}" for words in ended], done[-1].split("/")[0].split()[-1]


WHAT = {"death": (death, 1), "silent host": (silent_host, 5), "hang": (hang, 2)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--times", type=int, default=5)
    p.add_argument("--busy", type=int, default=4, help="processes a core in the second part; 0 leaves it out")
    p.add_argument("--minutes", type=float, default=0)
    p.add_argument("--build", default=job.BUILD)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-bench") as folder:
        for factor, busy in ((1, 0), (3, args.busy)):
            if factor > 1 and not busy:
                continue
            loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy * os.cpu_count())]
            try:
                for name, (measure, bound) in WHAT.items() if args.times else ():
                    if name == "silent host" and os.geteuid() != 0:
                        print("silent host: network namespaces want root")
                        continue

                    def once():
                        with load_of.Load() as load:
                            took = measure(args, folder)
                        return took, 0.0 if busy else load.foreign

                    took, foreign, thrown = load_of.quiet_pairs(args.times, once)
                    missed = ": MISSED" if max(took) > factor * bound else ""
                    where = f"with {busy} busy processes a core" if busy else load_of.verdict(foreign, thrown)
                    print(f"{name}: known after {statistics.median(took):.2f} s, at most {max(took):.2f} s (bound {factor * bound} s{missed}); {where}",
                          flush=True)
                if busy and args.minutes:
                    alarms, steps = nobody_accused(args, folder)
                    print(f"{args.minutes:g} minutes with {busy} busy processes a core: {steps} steps, "
                          + ("nobody was accused" if not alarms else "ALARMS:\n" + "".join(alarms)), flush=True)
            finally:
                for one in loads:
                    one.kill()
                    one.wait()


if __name__ == "__main__":
    main()
