"""ConfigMaps as the API server has them, without waiting for the kubelet to bring them.

The one part of dynamic flags that knows Kubernetes and the network; it is imported when such a place is named. May live
here: what the object is to a flag set. May not: how the API server is asked and followed, which is `wigwag.kube`.
"""
