"""The built-in HTTP server of the flags page."""
