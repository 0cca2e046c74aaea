"""The other end of the wire: HTTP/1.1 requests, and gRPC calls over HTTP/2, to servers that may misbehave.

May live here: connecting, TLS, proxies, limits on what comes back, and the two protocols. May not: what is fetched, how
often, or what to do about a failure; those who call know that.
"""
