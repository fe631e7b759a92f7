"""What a message holds, for people and for scripts."""

import math
from typing import Any, Dict, List, Optional, Union

from . import _core

_BITS_PER_BYTE = 8
_FLOAT_BYTES = 4
# Their frames are the parts of one tensor.
_ONE_TENSOR = ("file", "state")


def _value(text: str) -> Union[bool, float, str]:
    """Switches as booleans, finite numbers as numbers, the rest as text."""
    if text in ("on", "off"):
        return text == "on"
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _ranks(bitmap: "_core.Payload") -> List[int]:
    """The ranks whose bits are set."""
    return [8 * place + bit for place, byte in enumerate(bytes(bitmap))
            for bit in range(8) if byte >> bit & 1]


def _known_elems(frame: "_core.Frame") -> Optional[int]:
    """The number of values where the message itself tells it."""
    if frame.elems is not None:
        return frame.elems
    if frame.payload.codec == "fp32":
        return len(frame.payload) // _FLOAT_BYTES
    return None


def _frame(frame: "_core.Frame") -> Dict[str, Any]:
    payload = frame.payload
    elems = _known_elems(frame)
    if elems is not None:
        _core.check_payload(payload, elems)
    found: Dict[str, Any] = {"tensor": frame.tensor, "part": frame.part}
    found.update({"codec": payload.codec, "parameters": {}})
    if payload.codec == "contributors":
        found["contributors"] = _ranks(payload)
    else:
        parameters = _core.payload_parameters(payload)
        found["parameters"] = {key: _value(text) for key, text in parameters.items()}
    found["elems"] = elems
    found["shape"] = None if frame.shape is None else list(frame.shape)
    found["dtype"] = frame.dtype
    found["payload_bytes"] = len(payload)
    found["not_finite"] = payload.not_finite
    found["payload_verified"] = elems is not None
    return found


def _array(parts: List[Dict[str, Any]], wire_bytes: int) -> Dict[str, Any]:
    """What an array's first part says, and what all its parts come to."""
    shown = next((part for part in parts if not part["not_finite"]), parts[0])
    elems = sum(part["elems"] for part in parts)
    return {
        **parts[0],
        "codec": shown["codec"],
        "parameters": shown["parameters"],
        "parts": len(parts),
        "elems": elems,
        "payload_bytes": sum(part["payload_bytes"] for part in parts),
        "not_finite": any(part["not_finite"] for part in parts),
        "wire_bytes": wire_bytes,
        "bits_per_value": wire_bytes * _BITS_PER_BYTE / elems if elems else None,
        "compression_ratio": elems * _FLOAT_BYTES / wire_bytes if elems else None,
    }


def inspect(data: Any) -> Dict[str, Any]:
    """Verifies a message (a .tw file, a state, what was captured) and says what it holds.

    data  its bytes: anything with the buffer protocol or DLPack

    Returns what `tersewire inspect --json` prints. Header, checksum and every payload whose number
    of values is known are verified. Raises Error (kDataLoss) where it is damaged.
    """
    message = _core.parse(data)
    frames = [_frame(frame) for frame in message.frames]
    found: Dict[str, Any] = {"kind": message.kind, "sender": message.sender, "step": message.step}
    if message.kind in _ONE_TENSOR:
        found.update(_array(frames, message.wire_bytes))
    else:
        found["wire_bytes"] = message.wire_bytes
    found["frames"] = frames
    return found
