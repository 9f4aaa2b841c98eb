# SPDX-License-Identifier: Apache-2.0
# Writes rpc-v2.bin, beside this file, from the grammar of docs/rpc.md alone: a second implementation
# of version 2 of what workers say to each other. Each message stands after its length.
#   python3 tests/formats/rpc_v2.py
import pathlib
import struct

NO_BUDGET = 2**64 - 1


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def hello(worker, member, methods):
    out = b"\x01TRrp" + struct.pack("<HH", 2, 0) + text(worker) + struct.pack("<qI", member, len(methods))
    return out + b"".join(text(name) + text(signature) for name, signature in methods)


def call(method, number, budget, chain, arguments, context=None):
    out = b"\x02" + bytes([context is not None]) + struct.pack("<IQQB", method, number, budget, len(chain))
    out += b"".join(text(worker) + text(name) for worker, name in chain)
    return out + (struct.pack("<qQQ", *context) if context else b"") + arguments


def reply(number, result):
    return b"\x03" + struct.pack("<Q", number) + result


def failure(number, began, kind, type_, what, worker, rank, peer, op, seq):
    out = b"\x04" + struct.pack("<QB", number, began) + text(kind) + text(type_) + text(what) + text(worker)
    return out + struct.pack("<ii", rank, peer) + text(op) + struct.pack("<q", seq)


def numbered(kind, number):
    return bytes([kind]) + struct.pack("<Q", number)


def string(value):  # as base/encoding.h writes it
    return struct.pack("<Q", len(value)) + value.encode()


def tensor_inside(dtype, sizes, elements):
    return b"\x01" + struct.pack("<BB", dtype, len(sizes)) + struct.pack(f"<{len(sizes)}q", *sizes) + elements


def with_gradient(tensor):
    return bytes([tensor[0] | 4]) + tensor[1:]


def tensor_beside(dtype, sizes):
    return b"\x02" + struct.pack("<BB", dtype, len(sizes)) + struct.pack(f"<{len(sizes)}q", *sizes)


messages = [
    hello("server0", 7, [("pull", "tensor([i64])"), ("greet", "str(str,i32)")]),
    call(1, 3, 2_000_000, [], string("hi") + struct.pack("<i", 5)),
    call(0, 4, NO_BUDGET, [("trainer0", "step"), ("server1", "sum")],
         struct.pack("<Qqq", 2, 10, 11)),
    call(0, 5, 1_000, [("trainer0", "step")], with_gradient(tensor_inside(7, [1], struct.pack("<d", 0.5))),
         context=(-2, 11, 2**63)),  # 7: float64
    reply(3, string("hi 5")),
    reply(4, tensor_inside(6, [2, 1], struct.pack("<ff", 0.5, -2.0))),  # 6: float32
    reply(5, tensor_beside(4, [300, 2])),  # 4: int64
    failure(6, 1, "", "std::out_of_range", "3 is too far", "server0", -1, -1, "", -1),
    failure(7, 0, "PeerLost", "", "worker 'server0' leaves", "server0", 2, 3, "all_reduce", 9),
    numbered(5, 8),  # began
    numbered(6, 9),  # cancel
    b"\x07",  # goodbye
]
pathlib.Path(__file__).with_name("rpc-v2.bin").write_bytes(
    b"".join(struct.pack("<I", len(message)) + message for message in messages))
