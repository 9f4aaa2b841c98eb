# SPDX-License-Identifier: Apache-2.0
"""Writes control-v3.bin: a conversation in version 3 of the control protocol, made by docs/control_protocol.md
alone and with Python's own hash functions: hello, challenge, proof, welcome, a sealed request, its sealed reply."""
import hashlib
import hmac
import pathlib
import struct

SECRET, JOB = b"0123456789abcdef0123456789abcdef", b"job"


def string(text):
    return struct.pack("<I", len(text)) + text


def frame(kind, payload):
    return b"TRIR" + struct.pack("<HHI", 3, kind, len(payload)) + payload


def mac(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


hello = frame(1, b"\1" + string(JOB) + b"c" * 32)
challenge = frame(2, b"\1" + b"s" * 32 + struct.pack("<H", 29501))
said = string(b"trireme control 3") + string(hello) + string(challenge)
extracted = mac(hashlib.sha256(said).digest(), SECRET)


def expand(label):
    return mac(extracted, label + b"\1")


def seal(key, number, bare):
    first = mac(key, struct.pack("<QB", number, 0) + bare[:12])[:16]
    last = mac(key, struct.pack("<QB", number, 1) + bare)[:16]
    return bare[:12] + first + bare[12:] + last


request = frame(19, struct.pack("<Qq", 1, 2) + struct.pack("<I", 1) + string(b"k") + string(b"") + string(b""))
reply = frame(64, struct.pack("<q", 2) + string(b"") + struct.pack("<I", 0))
conversation = [hello, challenge, frame(3, expand(b"client proof")), frame(4, expand(b"server proof")),
                seal(expand(b"client seal"), 0, request), seal(expand(b"server seal"), 0, reply)]
(pathlib.Path(__file__).parent / "control-v3.bin").write_bytes(b"".join(conversation))
