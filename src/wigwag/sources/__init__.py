"""Where values come from: one file per kind of source (`file`, `directory`, …); kinds never import each other.

A source is a frozen spec and an async generator that yields the whole current value whenever it changes. It yields
`Unavailable` while it has nothing to show but goes on looking, and raises if it has to be started again. Only one that
polls retries by itself: it alone remembers by what the server knows its last answer again. What the kinds on disk share
is in `follow` (when to look), `listen` (what was heard), `lookup` (where to listen) and `notify` (inotify).
`merge` makes one document of many.
"""
