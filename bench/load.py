# SPDX-License-Identifier: Apache-2.0
"""What others took of the machine while a bench ran: above 5 % a figure is void, and its pair is measured again."""
import os
import resource
import time

FOREIGN = 0.05


def kernel_threads():
    """CPU ticks of the kernel's own threads: they move packets and pages for whoever measures, and are charged to nobody."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
        except (OSError, IndexError):  # it has ended
            continue
        if fields[1] == "2" or pid == "2":
            ticks += int(fields[11]) + int(fields[12])
    return ticks


def machine_cpu():
    """Seconds of all processes; interrupts and the kernel's threads are left out."""
    user, nice, system = map(int, open("/proc/stat").readline().split()[1:4])
    return (user + nice + system - kernel_threads()) / os.sysconf("SC_CLK_TCK")


def children_cpu():
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


class Load:
    """Wall and CPU seconds of a stretch of time, and foreign ones as a part of the machine's. Children must have ended."""

    def __enter__(self):
        self.begin, self.machine, self.own = time.time(), machine_cpu(), children_cpu() + time.process_time()
        return self

    def __exit__(self, *_):
        self.wall = time.time() - self.begin
        self.cpu = children_cpu() + time.process_time() - self.own
        self.foreign = max(0.0, machine_cpu() - self.machine - self.cpu) / (self.wall * os.cpu_count())


def quiet_pairs(pairs, measure):
    """`measure()` gives a pair's figures and its largest foreign load; pairs under foreign load are measured again, at most as often
    as there are pairs. Returns the figures, the largest load among them, and how many were thrown away."""
    kept, worst, thrown = [], 0.0, 0
    while len(kept) < pairs:
        figures, foreign = measure()
        if foreign > FOREIGN and thrown < pairs:
            thrown += 1
            continue
        kept.append(figures)
        worst = max(worst, foreign)
    return kept, worst, thrown


def verdict(worst, thrown):
    text = f"foreign load {100 * worst:.1f} %" + (": VOID" if worst > FOREIGN else "")
    return text + (f" ({thrown} pairs under foreign load thrown away)" if thrown else "")
