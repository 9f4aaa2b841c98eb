#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench/ddp_peer.py as WORLD ranks on this host: torch_ddp.py WORLD [arguments of ddp_peer.py].

Prints rank 0's JSON line. Exits 77 (CTest's "skipped") where there is no torch for this Python, 1 with the ranks' words
where one failed. Every rank has ended when this program ends.
"""
import os
import socket
import subprocess
import sys
import time

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/ddp_peer.py")
DEADLINE_S = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def attempt(world, arguments):
    """(exit statuses, stdouts, stderrs) of the ranks."""
    common = dict(os.environ, WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                  GLOO_SOCKET_IFNAME="lo")
    common.setdefault("OMP_NUM_THREADS", "1")
    ranks = [subprocess.Popen([sys.executable, PEER] + arguments, env=dict(common, RANK=str(rank)), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for rank in range(world)]
    # One line and a traceback at most: pipes hold that, so nobody has to read while the ranks run.
    end = time.monotonic() + DEADLINE_S
    try:
        while any(r.poll() is None for r in ranks) and time.monotonic() < end:
            if any(r.poll() not in (None, 0) for r in ranks):
                break
            time.sleep(0.01)
    finally:
        for r in ranks:
            if r.poll() is None:
                # The others of a failed rank wait for it until their own deadline.
                r.terminate()
        words = [r.communicate() for r in ranks]
    return [r.returncode for r in ranks], [w[0] for w in words], [w[1] for w in words]


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("no torch for " + sys.executable, file=sys.stderr)
        return 77
    world, arguments = int(sys.argv[1]), sys.argv[2:]
    for _ in range(3):
        statuses, out, err = attempt(world, arguments)
        if not any(statuses):
            sys.stdout.write(out[0])
            return 0
        # Somebody took the port between our asking for it and rank 0's binding it.
        if not any("Address already in use" in text or "EADDRINUSE" in text for text in err):
            break
    for rank, (status, text) in enumerate(zip(statuses, err)):
        print(f"rank {rank} ended with {status}\n{text}", file=sys.stderr)
    return 1


sys.exit(main())
