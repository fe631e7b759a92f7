"""Hugging Face's Trainer with compressed gradients.

    torchrun --nproc_per_node 2 examples/hf_trainer.py
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import tersewire.data
import tersewire.torch  # new


class Compress(TrainerCallback):  # new
    def __init__(self, trainer):
        self.trainer = trainer

    def on_train_begin(self, arguments, state, control, **_):
        self.hook = tersewire.torch.register(self.trainer.model_wrapped, "3lc")

    def on_log(self, arguments, state, control, logs, **_):
        if state.is_world_process_zero and "loss" in logs:
            sent = self.hook.counters.gradient_bytes / self.hook.counters.sent_bytes
            print(f"step {state.global_step}: loss {logs['loss']}, {sent:.1f}x fewer bytes sent")


if __name__ == "__main__":
    text = tersewire.data.text().encode()
    samples = [list(text[start:start + 64]) for start in range(0, len(text) - 64, 64)]
    trainer = Trainer(
        GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=2,
                                   bos_token_id=0, eos_token_id=0)),
        TrainingArguments(max_steps=60, logging_steps=10, learning_rate=0.003, save_strategy="no",
                          report_to="none", disable_tqdm=True, use_cpu=not torch.cuda.is_available()),
        train_dataset=[{"input_ids": sample, "labels": sample} for sample in samples])
    trainer.add_callback(Compress(trainer))  # new
    trainer.train()
