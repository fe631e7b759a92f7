"""Runs the script of the launcher in a process that this script has started: see _Spec."""

from .__main__ import launch_again

# Where multiprocessing asks for the script's contents, the name is not __main__.
globals().update(launch_again(__name__))
