"""Reference implementation of Tersewire's payloads, written from wire-format.md alone.

A file for each family of payloads; every one has

    decode(cursor, n)        the elements, or Rejected for what the format does not allow
    encode(task, settings)   the payload that "What a writer computes" says, to the bit

An element is its f32's 32 bits (a Python float does not carry every NaN), or
None where the payload leaves it untouched.
"""
