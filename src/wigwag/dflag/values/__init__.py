"""Kinds of values: how they are parsed, formatted and validated.

May live here: parsing, formatting, validators; pure functions of values. May not: flags, files, threads.
"""
