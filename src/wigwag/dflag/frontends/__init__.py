"""Flags as options of a program: of argparse, click, typer and absl.

May live here: one module for each of these, and what they share. Each adds an option for every flag, judges what was
given as the flag does, and puts only that into the flags, as of the command line. May not: anything that loads click,
typer or absl for those who do not use them.
"""
