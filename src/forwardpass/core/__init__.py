"""Words and contracts everything else is built from; imports nothing of ours.

What is made for every request is a msgspec.Struct: it costs a quarter of a dataclass to make.
"""
