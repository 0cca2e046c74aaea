"""Bytes ⇄ requests: HTTP/1.1 and HTTP/2 on TCP, TLS and unix sockets, and gRPC, gRPC-Web and Connect on top.

May live here: protocols, framing, limits, connections. May not: anything that knows what a flag is.
"""
