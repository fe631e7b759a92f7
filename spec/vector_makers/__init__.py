"""Makers of spec/vectors: a file a family, each with the functions

    accepted()        {name: vector} of messages that every reader must accept
    rejected(out)     adds messages that every reader must reject to Rejections

What accepted messages decode to is stated from how they were built, and not
asked of a decoder.
"""
