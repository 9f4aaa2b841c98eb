# SPDX-License-Identifier: Apache-2.0
"""Writes channel-v1-caller.bin and channel-v1-called.bin, made by docs/control_protocol.md alone: what two workers say
in version 1 of channels over TCP, each end's frames in a file of its own, sealed, from the greeting on. The caller
sends a message with bodies, the beginning of a long one, and closes; the called one says how much it took."""
import hashlib
import hmac
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
KEYS = {"caller": b"c" * 32, "called": b"s" * 32}  # of the seals


def string(text):
    return struct.pack("<I", len(text)) + text


def frame(kind, payload):
    return b"TRIR" + struct.pack("<HHI", 3, kind, len(payload)) + payload


def seal(key, number, bare):
    first = hmac.new(key, struct.pack("<QB", number, 0) + bare[:12], hashlib.sha256).digest()[:16]
    last = hmac.new(key, struct.pack("<QB", number, 1) + bare, hashlib.sha256).digest()[:16]
    return bare[:12] + first + bare[12:] + last


def greeting(name, generation):
    return frame(112, struct.pack("<H", 1) + string(name) + struct.pack("<QB", generation, 0) + string(b""))


def sizes(size, bodies):
    return struct.pack("<II", size, len(bodies)) + b"".join(struct.pack("<Q", body) for body in bodies)


said = {
    "caller": [greeting(b"trainer0", 3), frame(113, sizes(5, [3, 0]) + b"hello" + b"abc"),
               frame(114, b"\2" + sizes(4, [262144])), frame(115, b"\2" + b"longxxxxxx"),
               frame(117, string(b"we are done"))],
    "called": [greeting(b"server0", 3), frame(116, struct.pack("<Q", 10))],
}
for who, frames in said.items():
    (HERE / f"channel-v1-{who}.bin").write_bytes(b"".join(seal(KEYS[who], n, one) for n, one in enumerate(frames)))
