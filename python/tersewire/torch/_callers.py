"""Other libraries that ask for states and would lose what only some ranks have."""

import sys

from ._tensors import refuse

# By the function that asks.
_LOSE = {
    ("accelerate.checkpointing", "save_custom_state"):
        "Accelerate keeps the state of a registered object of rank 0 alone, and every rank has residuals "
        "of its own; omit register_for_checkpointing(), save each rank's state_dict() in a file of its "
        "own by accelerator.register_save_state_pre_hook(), and load it by "
        "register_load_state_pre_hook()",
    ("torch.distributed.checkpoint.state_dict", "_get_optim_state_dict"):
        "get_state_dict() takes an optimizer's state for whole parameters, and with exchange "
        "parameter-server every rank has a share; save optimizer.state_dict() on every rank instead",
}
_MOST_FRAMES = 8  # of our own and of decorators, before theirs


def refuse_loss() -> None:
    """Where one of them calls the method that calls this."""
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        sentence = _LOSE.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
        if sentence is not None:
            refuse(sentence)
        if frame.f_back is None:
            return
        frame = frame.f_back
