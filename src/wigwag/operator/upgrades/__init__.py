"""Agents that run, and should be others: upgrades of their image, pods without one, and which operator's they are.

What a pod is, the plans and the report are pure; the controllers watch, write and report. Nothing here is part of
admission: a new pod gets the right agent from the webhook.
"""
