"""Accelerate with compressed gradients, which two backward passes each accumulate.

    accelerate launch --num_processes 2 examples/accelerate_train.py  # one GPU each
    torchrun --nproc_per_node 2 examples/accelerate_train.py
"""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tersewire.data
import tersewire.torch  # new


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=not torch.cuda.is_available())
    torch.manual_seed(1)
    images, labels = map(torch.from_numpy, tersewire.data.digits())
    loader = DataLoader(TensorDataset(images.flatten(1) / 255, labels), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    hook = tersewire.torch.register(model, "3lc")  # new
    for step, (pixels, digits) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(pixels), digits)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if step % 60 == 1:
            sent = hook.counters.gradient_bytes / hook.counters.sent_bytes
            accelerator.print(f"step {step}: loss {loss.item():.3f}, {sent:.1f}x fewer bytes sent")
    accelerator.end_training()


if __name__ == "__main__":
    main()
