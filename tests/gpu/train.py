"""train.py STEPS WORKERS: a training loop whose batches are made by CPU-heavy data loaders, and how long its
steps took. One line, in ms: p50, p90, p99, the longest, their mean, and how many took 1.2 times the p50.
The loaders are fast enough: together they could make a batch three times as often as the GPU takes one."""
import sys
import time

import numpy
import torch

PASSES = 16  # so that a step is the GPU's


class Images(torch.utils.data.Dataset):
    """Each item is made anew from noise: what decoding and augmenting an image costs, some ms of a CPU."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        generator = numpy.random.default_rng(index)
        image = generator.standard_normal((3, 224, 224), dtype=numpy.float32)
        for _ in range(2):
            image = numpy.fft.irfft2(numpy.fft.rfft2(image), s=image.shape[1:]).astype(numpy.float32)
        return torch.from_numpy(image)


def one_thread(_):
    torch.set_num_threads(1)


def main():
    steps, workers = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 256, 7, stride=4), torch.nn.ReLU(),
        torch.nn.Conv2d(256, 512, 5, stride=2), torch.nn.ReLU(),
        torch.nn.Conv2d(512, 512, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = iter(torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=workers, pin_memory=True,
                                              prefetch_factor=4, worker_init_fn=one_thread))
    times, warm = [], steps // 5 + 10
    for step in range(steps + warm):
        start = time.monotonic()
        batch = next(loader).cuda(non_blocking=True)
        optimizer.zero_grad()
        for _ in range(PASSES):
            (model(batch).square().mean() / PASSES).backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= warm:
            times.append((time.monotonic() - start) * 1e3)
    times.sort()

    def at(share):
        return times[min(len(times) - 1, int(share * len(times)))]

    slow = sum(t > 1.2 * at(0.5) for t in times)
    print(f"steps {len(times)} p50 {at(0.5):.2f} p90 {at(0.9):.2f} p99 {at(0.99):.2f} max {times[-1]:.2f} "
          f"mean {sum(times) / len(times):.2f} slow {slow}", flush=True)


if __name__ == "__main__":
    main()
