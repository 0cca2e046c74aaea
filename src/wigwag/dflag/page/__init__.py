"""The flags page: lists flags with their values and origins over HTTP, and sets the dynamic ones.

May live here: the site, which turns a request into a response and knows no connections (`site` and what it uses), and
the ways to serve it (`asgi`, `wsgi`, `server`). May not: anything that a program without the page needs; the rest of
`dflag` imports this package only when a page is asked for.
"""
