"""ConfigMaps read from the API server, without waiting for the kubelet to mount them.

The one part of dynamic flags that knows Kubernetes and the network; it is imported when such a place is used. May live
here: what the object means for a flag set. May not: how the API server is watched, which is `wigwag.kube`.
"""
