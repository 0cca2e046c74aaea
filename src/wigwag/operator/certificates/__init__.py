"""Certificates of the webhooks: our own CA in a Secret, one that cert-manager wrote, or files in a directory.

secret     what the keys of the Secret mean; all that a replica needs in order to serve
store      the Secret itself: read, and written step by step
authority  X.509: a CA, certificates signed by it; needs the extra `operator`
rotation   what the Secret should hold now; pure but for the keys it makes
"""
