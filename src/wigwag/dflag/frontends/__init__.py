"""Flags as options of a program: of argparse, click, typer and absl.

May live here: one module for each of these, and what they share. Each adds an option for every flag,
validates its value, and sets the flag with the origin command line. May not: anything that loads click,
typer or absl for those who do not use them.
"""
