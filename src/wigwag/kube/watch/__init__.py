"""Watches: list, then watch, relist when needed, and compare with the server beside it.

spec       which objects                      listwatch  requests, faults, timing
reflector  what to do next, without I/O       follow     sends the requests, yields whole maps of objects
store      the objects and their versions     verify     is the store what the server has?
decode     bytes to records                   objects    a published mapping, and what has changed since another
"""
