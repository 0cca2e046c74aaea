"""The flags page: what flags there are, what they hold and why, and a way to change the dynamic ones, over HTTP.

May live here: the site, which turns a request into an answer and knows no connection (`site` and what it uses), and the
ways to serve it (`asgi`, `wsgi`, `server`). May not: anything that a program without the page would need; nothing
outside of this package imports it before it is asked for.
"""
