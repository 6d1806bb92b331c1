"""comm-init.py LIBRARY GPUS: makes NCCL communicators of this machine's GPUs in one process, as every job
does first, and says how that ended. No PyTorch and no CUDA but NCCL's own."""
import ctypes
import sys

nccl = ctypes.CDLL(sys.argv[1])
nccl.ncclGetErrorString.restype = ctypes.c_char_p
communicators = (ctypes.c_void_p * int(sys.argv[2]))()
result = nccl.ncclCommInitAll(communicators, len(communicators), None)
print("ncclCommInitAll:", nccl.ncclGetErrorString(result).decode(), flush=True)
if result == 0:
    for communicator in communicators:
        nccl.ncclCommDestroy(ctypes.c_void_p(communicator))
sys.exit(1 if result else 0)
