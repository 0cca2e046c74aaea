"""Admission webhooks: what the API server sends and gets, where it is served, and how it is registered.

What a review decides is not here: a webhook is a pure function from `AdmissionRequest` to `AdmissionResponse`.
"""
