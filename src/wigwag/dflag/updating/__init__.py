"""From places to flags: what is read and watched, what of it is good, and the updater that keeps flags at it.

May live here: places, what they hold, plans of changes, and the thread or loop that follows. May not: sockets.
"""
