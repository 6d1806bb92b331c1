"""An all-reduce over the tasks of a step or the workers of torchrun, one GPU each: the sum, what each rank
is bound to, and the bus bandwidth as nccl-tests counts it (2 (n-1)/n of the bytes; 0 on one GPU)."""
import os
import sys
import time

import torch
import torch.distributed as dist

local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", 0)))
os.environ.setdefault("RANK", os.environ.get("SLURM_PROCID", "0"))
os.environ.setdefault("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29517")
torch.cuda.set_device(local % torch.cuda.device_count())
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
check = torch.full((1 << 20,), float(rank + 1), device="cuda")
dist.all_reduce(check)
data = torch.zeros(1 << 26, device="cuda")  # 256 MiB
for _ in range(5):
    dist.all_reduce(data)
torch.cuda.synchronize()
start = time.monotonic()
for _ in range(20):
    dist.all_reduce(data)
torch.cuda.synchronize()
took = (time.monotonic() - start) / 20
cpus = sorted(os.sched_getaffinity(0))
bandwidth = 2 * (world - 1) / world * data.numel() * 4 / took / 1e9
# in one write: workers share a pipe
sys.stdout.write(f"worker {rank} sum {check[0].item():.0f} cpus {cpus[0]}-{cpus[-1]} of {len(cpus)}\n")
if rank == 0:
    sys.stdout.write(f"bus bandwidth {bandwidth:.1f} GB/s over {world}\n")
sys.stdout.flush()
dist.destroy_process_group()
