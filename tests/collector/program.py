"""A program under watch: program.py NAME SECONDS [FLOPS], regions of a millisecond until its time is up."""

import sys
import time

from roofmon.region import region

name, seconds = sys.argv[1], float(sys.argv[2])
flops = float(sys.argv[3]) if len(sys.argv) > 3 else None
sys.argv[0] = name
end = time.monotonic() + seconds
while time.monotonic() < end:
    with (
        region("outer", bytes=1000.0),
        region("inner", flops=flops, bytes=500.0, precision="fp64", level="llc"),
    ):
        time.sleep(0.001)
