"""What runs in processes that a script of the launcher starts, in place of the script: see _Spec."""

from .__main__ import launch_again

# Where multiprocessing asks for the script's contents, the name is not __main__.
globals().update(launch_again(__name__))
