"""Hugging Face's Trainer with compressed gradients.

    torchrun --nproc_per_node 2 examples/hf_trainer.py
"""

