"""How the parameters of a codec are read: NAME:KEY=VALUE,KEY=VALUE.

A codec lists its parameters as {key: (function that reads a value, default)}.
"""

import math

from .floats import f32

ON_OFF = {"on": True, "off": False}


class BadCodecText(ValueError):
    """A codec's text names no codec or a wrong parameter."""


def one_of(choices):
    """choices: {text: value}"""
    return lambda text: choices[text]


def whole(low, high=2**40):
    return lambda text: within(int(text), low, high)


def real(low, high):
    return lambda text: within(float(text), low, high)


def positive(high):
    return lambda text: within(float(text), math.ulp(0.0), high)


def within(value, low, high):
    if not (low <= value <= high and math.isfinite(value)):
        raise ValueError(f"{value} is out of range")
    return value


def f32_within(low, high):
    """A number that the format computes with as an f32."""
    return lambda text: within(f32(float(text)), low, high)


LARGEST_LEAD = 64


def error_feedback(default, lead=1.0):
    """Those that keep a residual unless told not to have a lead as well."""
    parameters = {"ef": (one_of(ON_OFF), default)}
    if default:
        parameters["lead"] = (f32_within(1, LARGEST_LEAD), lead)
    return parameters


# What every codec takes: whether a tensor that is not finite travels as it is, or is refused.
COMMON = {"non-finite": (one_of({"send": True, "reject": False}), True)}


class Refused(Exception):
    """A writer does not encode these values."""


def read_settings(name, parameters, text):
    """{key: value} from the part after the codec's name."""
    parameters = parameters | COMMON
    settings = {key: default for key, (_, default) in parameters.items()}
    said = set()
    for item in text.split(",") if text else []:
        key, equals, value = item.partition("=")
        if key not in parameters or not equals:
            raise BadCodecText(f"{name} has no parameter '{item}'.")
        try:
            settings[key] = parameters[key][0](value)
            said.add(key)
        except (ValueError, KeyError) as error:
            raise BadCodecText(f"'{value}' is no value for {key} of {name}.") from error
    if "lead" in settings and not settings["ef"]:
        if "lead" in said and settings["lead"] != 1:
            raise BadCodecText(f"{name} has no residual with ef=off, and so no lead.")
        settings["lead"] = 1.0
    return settings
