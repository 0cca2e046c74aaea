"""The command line: one file per command, each a frozen record of options and a function that returns an exit code.

May live here: reading arguments, talking to people, exit codes. May not: decisions about flags.
Exit codes: 0 done, 1 the answer is an error or a finding, 2 the call or its input cannot be used.
"""
