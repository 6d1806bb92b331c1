"""noise.py CPUS MS PERIOD_MS [PLACE]: host daemons that wake together: one process for each of CPUS (as 0-3,8), busy for
MS in every PERIOD_MS of the clock. Each is bound to its CPU, or to those of PLACE. Ends with its parent."""
import ctypes
import os
import signal
import sys
import time


def cpus(text):
    out = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        out.extend(range(int(low), int(high or low) + 1))
    return out


def burn(busy, period):
    while True:
        time.sleep(period - time.time() % period)
        end = time.monotonic() + busy
        while time.monotonic() < end:
            pass


def main():
    where = cpus(sys.argv[1])
    busy, period = int(sys.argv[2]) / 1e3, int(sys.argv[3]) / 1e3
    place = cpus(sys.argv[4]) if len(sys.argv) > 4 else None
    for cpu in where:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            os.sched_setaffinity(0, place or [cpu])
            burn(busy, period)
    signal.pause()


main()
