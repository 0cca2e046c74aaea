"""The Kubernetes operator: a drop-in for open-feature-operator. It injects agents into pods, and runs them on demand.

May live here: the custom resources, what their objects mean for pods and other objects, the webhooks and controllers,
and the one wiring function. What is decided here is decided by pure functions of objects; reading and writing objects
is left to `kube`.
"""
