#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`hybrid` against torch's own Gloo over the same ranks: two hosts of two ranks, the hosts being network namespaces joined by veth.

  bench/hybrid_vs_gloo.py [--hosts 2] [--per-host 2] [--rate 10gbit] [--congestion reno] [--no-binding] [--build DIR] [--json FILE] [-- BENCH FLAGS]

Runs `trireme bench all_reduce --backend hybrid,gloo` (the words after -- replace all_reduce -b 16M -e 16M): one job that times both over
the same ranks, alternating round by round; the ratio is the median over rounds. CPU seconds and the foreign load stand below; above 5 %
the figures count for nothing. A rank on CPU k of its host runs on CPU k here, as `trireme run` would bind it there; --no-binding leaves
all of them free. Wants root. The namespaces have no names: they end with the processes in them, whatever becomes of this script.
"""
import argparse
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from load import FOREIGN, Load  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PORT = 29500  # in a namespace of our own nobody has it


def with_parent():
    """In a child: end when this script does, also when it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Hosts:
    """Namespaces 10.77.0.1, .2, … with an interface eth0 each: the ends of one veth, or, where there are more than two, joined by a bridge."""

    def __init__(self, count, rate, congestion):
        self.count, self.holders = count, []
        try:
            for _ in range(count):
                self.holders.append(self.holder())
            self.join()
            for host in range(count):
                if congestion:
                    self.call(host, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion}")
                if rate:
                    self.call(host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "512kb", "latency", "50ms")
            self.congestion = self.call(0, "sysctl", "-n", "net.ipv4.tcp_congestion_control").strip()
        except BaseException:
            self.close()
            raise

    def join(self):
        if len(self.holders) == 2:
            self.ip(0, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(self.holders[1].pid))
        else:
            self.holders.append(self.holder())
            self.ip(-1, "link", "add", "br0", "type", "bridge")
            self.ip(-1, "link", "set", "br0", "up")
            for host, holder in enumerate(self.holders[:-1]):
                self.ip(-1, "link", "add", f"p{host}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
                self.ip(-1, "link", "set", f"p{host}", "master", "br0", "up")
        for host in range(self.count):
            self.ip(host, "link", "set", "lo", "up")
            self.ip(host, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            self.ip(host, "link", "set", "eth0", "up")

    @staticmethod
    def holder():
        """Holds a namespace; ends when its stdin does."""
        made = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", "echo up; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=with_parent,
        )
        if made.stdout.readline() != "up\n":
            sys.exit("hybrid_vs_gloo: cannot make a network namespace here: see the line above")
        return made

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def on(self, host, *program):
        return ["nsenter", "-t", str(self.holders[host].pid), "--net", "--", *program]

    def call(self, host, *program):
        done = subprocess.run(self.on(host, *program), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"hybrid_vs_gloo: {' '.join(program)}: {done.stderr.strip()}")
        return done.stdout

    def ip(self, host, *words):
        self.call(host, "ip", *words)

    def close(self):
        for holder in self.holders:
            holder.stdin.close()
            holder.kill()
            holder.wait()


def run_ranks(args, hosts, folder):
    """The ranks as torchrun on each host would start them; the exit code of the first that fails."""
    secret = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write(secrets.token_hex(32))
    size, cpus = args.hosts * args.per_host, sorted(os.sched_getaffinity(0))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "TRIREME_HOST_ID", "SLURM_", "OMPI_", "PMI"))}
    env.update(
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(args.per_host),
        MASTER_ADDR=hosts.address(0),
        MASTER_PORT=str(PORT),
        TORCHELASTIC_RUN_ID="hybrid_vs_gloo",
        TRIREME_SECRET_FILE=secret,
        GLOO_SOCKET_IFNAME="eth0",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
    )
    command = [os.path.join(args.build, "bin", "trireme"), "bench", *(args.bench or ["all_reduce", "-b", "16M", "-e", "16M"])]
    if not any(word.split("=")[0] == "--backend" for word in command):
        command += ["--backend", "hybrid,gloo"]
    if args.json:
        command += ["--json", os.path.abspath(args.json)]
    ranks = []
    try:
        for rank in range(size):
            host, local = divmod(rank, args.per_host)

            def prepare(cpu=cpus[local % len(cpus)]):
                with_parent()
                if args.binding:
                    os.sched_setaffinity(0, {cpu})

            ours = dict(env, RANK=str(rank), LOCAL_RANK=str(local), GROUP_RANK=str(host))
            ranks.append(subprocess.Popen(hosts.on(host, *command), env=ours, preexec_fn=prepare))
        left = list(ranks)
        while left:  # one that fails ends the others soon; nobody is waited for without end
            for rank in list(left):
                try:
                    rank.wait(timeout=0.2)
                    left.remove(rank)
                except subprocess.TimeoutExpired:
                    pass
        return next((rank.returncode for rank in ranks if rank.returncode), 0)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()


def main():
    words = sys.argv[1:]
    bench = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--per-host", type=int, default=2)
    parser.add_argument("--rate", help="what a link carries each way, in tc's words")
    parser.add_argument("--congestion", help="TCP's congestion control on these hosts: reno, cubic, bbr [this machine's]")
    parser.add_argument("--no-binding", dest="binding", action="store_false")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--json", help="the bench's JSON lines")
    args = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    args.bench = bench
    if os.geteuid() != 0:
        print("hybrid_vs_gloo: skipped: network namespaces want root")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        hosts = Hosts(args.hosts, args.rate, args.congestion)
        try:
            with Load() as load:
                code = run_ranks(args, hosts, folder)
            wall, cpu, foreign = load.wall, load.cpu, load.foreign
        finally:
            hosts.close()
    verdict = ": above 5 %, these figures count for nothing" if foreign > FOREIGN else ""
    print(f"# {args.hosts} hosts x {args.per_host} ranks, {'bound' if args.binding else 'not bound'}, link {args.rate or 'as fast as veth'}, TCP with {hosts.congestion}")
    print(f"# Whole job, start and end included: {cpu:.1f} CPU seconds in {wall:.1f} s; foreign load {100 * foreign:.1f} %{verdict}")
    if args.json:
        with open(args.json, "a") as f:
            f.write(json.dumps({"event": "job", "cpu_s": cpu, "wall_s": wall, "foreign_load": foreign}) + "\n")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
