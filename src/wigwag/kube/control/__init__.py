"""The parts of a controller, each usable alone: what keeps objects of a cluster as they should be. Knows no flags.

    informer    changes of a watch ──▶ keys in a queue
    queue       `WorkQueue`: keys to work on; one worker per key at a time, back-off per key
    controller  `Controller`: workers that reconcile the keys of a queue
    apply       `Applier`: makes objects as they should be, without a write if they are; prunes
    lease       `LeaderElector`: one of several replicas leads
    events      `EventRecorder`: what users see in `kubectl describe`

Modules here know `client` and `watch`; the queue knows neither. What is reconciled belongs to the callers.
"""
