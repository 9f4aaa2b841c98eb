# SPDX-License-Identifier: Apache-2.0
# Writes rpc-calls-v1.bin, beside this file, from the grammars of docs/rpc.md alone: a second
# implementation of the arguments and results of what workers say to each other of references, of
# actors, of backwards and of parameters. Each value stands after its name and its length.
#   python3 tests/formats/rpc_calls_v1.py
import pathlib
import struct


def u8(n):
    return struct.pack("<B", n)


def i32(n):
    return struct.pack("<i", n)


def i64(n):
    return struct.pack("<q", n)


def u64(n):
    return struct.pack("<Q", n)


def f64(x):
    return struct.pack("<d", x)


def text(value):
    return u64(len(value)) + value.encode()


def many(items):
    return u64(len(items)) + b"".join(items)


def tensor(dtype, sizes, elements):  # up to 1 KiB; 6: float32, 4: int64
    return struct.pack("<BBB", 1, dtype, len(sizes)) + b"".join(map(i64, sizes)) + elements


def floats(*x):
    return tensor(6, [len(x)], struct.pack(f"<{len(x)}f", *x))


def rows(*n):
    return tensor(4, [len(n)], struct.pack(f"<{len(n)}q", *n))


# References
def object_of(owner, maker, number):
    return i64(owner) + i64(maker) + u64(number)


def rref(owner, maker, number, token, worker, where):
    return object_of(owner, maker, number) + u64(token) + text(worker) + text(where)


def maker(owner, maker_, number, life, where):
    return object_of(owner, maker_, number) + u64(life) + text(where)


# Actors
def spawn(actor, group, rank, size, restarts, on_error, most_restarts, within_ns):
    return (u64(actor) + text(group) + i32(rank) + i32(size) + i32(restarts) + i32(on_error) +
            i32(most_restarts) + i64(within_ns))


def message(actor, ticket, answer):
    return u64(actor) + u64(ticket) + u8(answer)


# Backward
def context(member, number):
    return i64(member) + u64(number)


def pair(member, number, answer):
    return i64(member) + u64(number) + u8(answer)


def found(exits, touches):
    return many([pair(*p) + text(worker) + i64(member) for p, worker, member in exits]) + many(map_(i32, touches))


def map_(write, items):
    return [write(item) for item in items]


def order(losses, waits, entries, exits, after):
    pairs = lambda list_: many([pair(*p) for p in list_])
    return u8(losses) + u8(waits) + pairs(entries) + pairs(exits) + many(map_(pairs, after))


# Parameters
def standing(epoch, fresh, steps, lost):
    return u64(epoch) + u8(fresh) + many(map_(i64, steps)) + many(map_(i32, lost))


def decision(epoch, fresh, step, lost):
    return u64(epoch) + u8(fresh) + i64(step) + many(map_(i32, lost))


def key(name, dtype, sizes, trained):
    return text(name) + i32(dtype) + many(map_(i64, sizes)) + u8(trained)


def table(name, rows_, width, dtype, init_std, seed):
    return text(name) + i64(rows_) + i64(width) + i32(dtype) + f64(init_std) + u64(seed)


def join(rank, server, servers, keys, tables, values):
    return i32(rank) + i32(server) + i32(servers) + many(keys) + many(tables) + many(values)


def push(rank, epoch, step, attempt, lr, total, keys, gradients, tables, rows_, row_gradients):
    u32s = lambda list_: many([struct.pack("<I", n) for n in list_])
    return (i32(rank) + u64(epoch) + i64(step) + i64(attempt) + f64(lr) + i64(total) + u32s(keys) +
            many(gradients) + u32s(tables) + many(rows_) + many(row_gradients))


def wanted(rank, epoch, step):
    return i32(rank) + u64(epoch) + i64(step)


VALUES = {
    "rref": rref(3, 2, 5, 9, "server0", "table.cc:12"),
    "rref to nothing": object_of(0, 0, 0),
    "new": maker(3, 2, 5, 7, "table.cc:12") + i64(100),
    "trireme.rref.make": maker(3, 2, 6, 8, "table.cc:14") + text("sum") + text("f64([f64])") +
                         many(map_(f64, [0.5, -2])),
    "trireme.rref.claim": object_of(3, 2, 5) + u64(7),
    "trireme.rref.release": object_of(3, 2, 5) + u64(7),
    "trireme.rref.settle": u64(9),
    "trireme.rref.withdraw": many(map_(u64, [9, 10])) + u8(1),
    "trireme.rref.withdraw's result": many(map_(u64, [10])),
    "trireme.rref.fetch": object_of(3, 2, 6) + text("f64"),
    "actor": spawn(2**63, "sims", 1, 4, 2, 1, 3, 60 * 10**9) + f64(9.8),
    "actor's message": message(2**63, 17, 0) + i64(100),
    "trireme.autograd.look": context(2, 1) + u64(1) + u8(0) + many([pair(2, 4, 1)]),
    "trireme.autograd.look's result": many([found([((2, 4, 0), "trainer0", 2)], [0, 1])]),
    "trireme.autograd.run": context(2, 1) + u64(1) + u8(1) + u8(0) +
                            many([order(0, 1, [(2, 4, 1)], [(2, 4, 0)], [[(2, 4, 0)]])]),
    "trireme.autograd.came": context(2, 1) + u64(1) + pair(2, 4, 1) + many([floats(0.5, -2)]),
    "trireme.autograd.give_up": context(2, 1) + u64(1) + text("a worker is gone"),
    "trireme.autograd.ended": context(2, 1),
    "trireme.server.join": join(0, 1, 2, [key("a.weight", 6, [2], 1), key("b", 6, [3], 0)],
                                [table("items", 10, 2, 6, 0.25, 11)],
                                [floats(0.5, -2), floats(1, 2, 3)]),
    "trireme.server.join's result": standing(0, 1, [], []) + u8(1) + i64(0),
    "trireme.server.attend": i32(1) + i64(-1),
    "trireme.server.leave": i32(1),
    "trireme.server.decide": i32(0) + u64(0) + many([text("server0"), text("server1")]) +
                             many([standing(1, 0, [4, 8], [1]), standing(1, 0, [8], [])]),
    "trireme.server.decide's result": decision(2, 0, 8, [1]),
    "trireme.server.begin": i32(0) + decision(1, 1, 0, []),
    "trireme.server.push": push(0, 1, 0, 0, 0.1, 1, [0], [floats(0.25, -1)], [0], [rows(0, 3)],
                                [tensor(6, [2, 2], struct.pack("<4f", 1, 2, 3, 4))]),
    "trireme.server.pull": wanted(0, 1, 1),
    "trireme.server.pull's result": u8(0) + many([floats(1, 2)]),
    "trireme.server.look_up": wanted(0, 1, 1) + struct.pack("<I", 0) + rows(0, 3),
    "trireme.server.look_up's result": u8(1) + b"\0",
    "trireme.server.waited_for": i64(3),
}

if __name__ == "__main__":
    pathlib.Path(__file__).with_name("rpc-calls-v1.bin").write_bytes(
        b"".join(struct.pack("<I", len(name)) + name.encode() + struct.pack("<I", len(value)) + value
                 for name, value in VALUES.items()))
