"""What flags hold: kinds of values, how they are read from text and written, and what they must be.

May live here: parsing, formatting, validators; pure functions of values. May not: flags, files, threads.
"""
