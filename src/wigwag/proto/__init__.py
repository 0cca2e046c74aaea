"""The schemas of the services we speak, as `.proto` files: for people, and for tools such as grpcurl and ghz.

Nothing is generated from them. `serve.messages` writes the few messages by hand, which is faster, and cannot clash with
the generated modules of a flagd provider in the same process.
"""
