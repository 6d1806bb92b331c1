"""measure.py RUNS PROGRAM ARGUMENT…: median wall and CPU time of a whole program, in ms, after one run that
warms up. Its exit status is that of the last run."""
import os
import statistics
import subprocess
import sys
import time

runs, command = int(sys.argv[1]), sys.argv[2:]
wall, cpu, status = [], [], 0
for run in range(runs + 1):
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if run > 0:
        wall.append((time.monotonic() - start) * 1e3)
        cpu.append((usage.ru_utime + usage.ru_stime) * 1e3)
print(f"{statistics.median(wall):.1f} {statistics.median(cpu):.1f}")
sys.exit(os.waitstatus_to_exitcode(status))
