# SPDX-License-Identifier: Apache-2.0
"""A job that a bench starts, whose lines are read with the time at which they came."""
import ctypes
import os
import signal
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "release")

PR_SET_CHILD_SUBREAPER = 36

TINY = """{"model": {"type": "mlp", "inputs": 16, "hidden": [8], "outputs": 4}, "data": {"type": "dummy"},
"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}}}
"""


def tiny_config(folder):
    path = os.path.join(folder, "tiny.json")
    with open(path, "w") as file:
        file.write(TINY)
    return path


def trireme(build):
    return os.path.join(build, "bin", "trireme")


class Job:
    """`words`, with both streams read; what it started ends with it."""

    def __init__(self, words, env=None, cwd=None):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.lines, self.changed = [], threading.Condition()
        self.process = subprocess.Popen(words, env=dict(os.environ, **(env or {})), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append((time.monotonic(), line.decode(errors="replace")))
                self.changed.notify_all()
        with self.changed:
            self.lines.append((time.monotonic(), ""))
            self.changed.notify_all()

    def wait_for(self, text, patience=60):
        """When a line with it came."""
        end = time.monotonic() + patience
        with self.changed:
            seen = 0
            while True:
                for at, line in self.lines[seen:]:
                    if text in line:
                        return at
                seen = len(self.lines)
                if (self.lines and self.lines[-1][1] == "") or not self.changed.wait(max(0.0, end - time.monotonic())):
                    raise SystemExit(f"no line with '{text}' came:\n" + "".join(line for _, line in self.lines[-30:]))

    def rank(self, number, patience=20):
        """The process of a rank: of those that descend from this job, the one that has this RANK and runs no launcher."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            for pid in self.descendants():
                try:
                    if f"RANK={number}".encode() in open(f"/proc/{pid}/environ", "rb").read().split(b"\0"):
                        return pid
                except OSError:
                    pass
            time.sleep(0.01)
        raise SystemExit(f"no process is rank {number}")

    def descendants(self):
        found, at = [self.process.pid], 0
        while at < len(found):
            try:
                tasks = os.listdir(f"/proc/{found[at]}/task")
                for task in tasks:
                    found += [int(p) for p in open(f"/proc/{found[at]}/task/{task}/children").read().split()]
            except OSError:
                pass
            at += 1
        return found[1:]

    def cpu_seconds(self):
        """Of the launcher alone."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, how=signal.SIGTERM, patience=60):
        ranks = self.descendants()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            for rank in ranks:  # whom a killed launcher leaves to us: their CPU time is ours, and not foreign
                try:
                    os.waitpid(rank, 0)
                except ChildProcessError:  # the launcher has reaped it
                    pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGKILL)
