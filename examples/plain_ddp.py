"""DistributedDataParallel with compressed gradients.

    torchrun --nproc_per_node 2 examples/plain_ddp.py
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import tersewire.data
import tersewire.torch  # new


def main():
    dist.init_process_group()
    torch.manual_seed(1)
    images, labels = map(torch.from_numpy, tersewire.data.digits())
    data = TensorDataset(images.flatten(1) / 255, labels)
    loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)))
    hook = tersewire.torch.register(model, "3lc")  # new
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, (pixels, digits) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), digits)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 30 == 0:
            sent = hook.counters.gradient_bytes / hook.counters.sent_bytes
            print(f"step {step}: loss {loss.item():.3f}, {sent:.1f}x fewer bytes sent", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
