"""The console: one page that shows what a process knows, and the JSON API behind it.

May live here: the page and its API, as far as every face shares them. What a face knows, the face itself returns.
"""
