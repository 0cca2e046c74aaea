"""What becomes of a pod that asks for flags: it gets an agent, or an environment for in-process providers.

    (request, known objects, settings) ──▶ decide ──▶ Allowed(patch, warnings) or Denied(code, message)

All of it is pure: no request is made while a pod waits, and the same pod and objects give the same answer. A pod that
already has what it asks for gets an empty patch. May not live here: reading or writing objects.
"""
