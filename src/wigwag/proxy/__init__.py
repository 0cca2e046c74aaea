"""The proxy: a drop-in for flagd-proxy. One watch per target, and its document to everybody who subscribes to it.

May live here: the proxy's options, which targets may be asked for and by whom, what is watched for how long, and the
one wiring function. May not: protocols (see `serve`, `wire`), or anything that looks into a flag.
"""
