"""Reconcilers: functions from objects, what is observed, and settings to what should exist.

May live here: decisions about objects that the operator writes, and about the status of those it reads. No I/O: a
controller fetches what a function asks for, and applies the difference.
"""
