"""How to reach an API server: kubeconfig files, service accounts, credentials and certificates."""
