"""Watches: the reflector (list, watch, relist), its store, and one watch shared by many subscribers."""
