"""From ConfigMaps to flags: places that are read and watched, and the updater that applies their contents.

May live here: places, their contents, plans of changes, and the thread or loop that follows. May not: sockets.
"""
