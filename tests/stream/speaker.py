"""A child that speaks the stream in a given manner; run by the consumer's tests.

speaker.py MANNER [FILE]: `well` ticks until its stdin closes; `dies`, `garbage`, `half` end after a few
ticks as they say; `hangs` ignores everything after one. With FILE, the first start behaves so and later
ones are `well`.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

import msgspec

from roofmon.stream.framing import frame
from roofmon.stream.messages import VERSION, Describe, Hello, Keyframe, Status, Tick
from roofmon.stream.writer import MessageWriter, private_output

manner = sys.argv[1]
if len(sys.argv) > 2:
    mark = Path(sys.argv[2])
    if mark.exists():
        manner = "well"
    mark.touch()

descriptor = private_output()
print("a stray print that must not reach the stream", flush=True)
writer = MessageWriter(descriptor)
hello = Hello(version=VERSION, roofmon="0", host=manner, pid=1, time_unix_ns=time.time_ns())


def tick(sequence: int) -> Tick:
    return Tick(sequence=sequence, time_unix_ns=time.time_ns(), interval_ns=1)


writer.send(hello)
writer.send(
    Keyframe(
        hello=hello,
        describe=Describe(),
        tick=tick(1),
        roofs=[],
        status=Status(rungs=[], programs={}),
        notices=[],
        progress=[],
    )
)
if manner == "garbage":
    os.write(descriptor, b"\xff" * 100)
    time.sleep(30)
elif manner == "half":
    os.write(descriptor, frame(msgspec.msgpack.Encoder(), tick(2))[:9])
    sys.exit(0)
elif manner == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
elif manner == "hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)
for sequence in range(2, 1000):
    if select.select([0], [], [], 0.05)[0] and not os.read(0, 4096):
        break
    writer.send(tick(sequence))
