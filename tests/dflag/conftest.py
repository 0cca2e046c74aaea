"""uWSGI imports its service to start it, so there is nothing in it to be collected."""

collect_ignore = ["uwsgi_app.py"]
