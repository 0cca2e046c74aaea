"""The flag engine: flag documents in, resolutions out. Everything here is pure.

May live here: parsing, compiling, evaluating, explaining, merging and linting flags.
May not: a clock, an event loop, the network, files, the environment, logging. Time is an argument.
"""
