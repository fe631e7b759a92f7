"""Lightning with compressed gradients.

    python examples/lightning_train.py  # starts the second rank itself; or torchrun
"""
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tersewire.data
import tersewire.torch  # new


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def on_train_start(self):
        self.hook = tersewire.torch.register(self.trainer.model, "3lc")  # new

    def training_step(self, batch, step):
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        if step % 30 == 1:
            sent = self.hook.counters.gradient_bytes / self.hook.counters.sent_bytes
            self.print(f"step {step}: loss {loss.item():.3f}, {sent:.1f}x fewer bytes sent")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.002)


if __name__ == "__main__":
    lightning.seed_everything(1)
    images, labels = map(torch.from_numpy, tersewire.data.digits())
    loader = DataLoader(TensorDataset(images.flatten(1) / 255, labels), batch_size=64, shuffle=True)
    trainer = lightning.Trainer(strategy="ddp", devices=2, max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Digits(), loader)
