"""Objects of open-feature-operator's alpha versions become v1beta1: flags, sources, annotations of workloads.

Everything here is pure: values in, values and remarks out. Files and output are the command's (`cli.commands.migrate`).
"""
