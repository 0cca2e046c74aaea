"""Reaching an API server: `cluster` finds it, `kubeconfig` parses files, `credentials` and `tls` serve a request."""
