"""What should exist because of an object: pure functions from objects and settings to objects and status.

    (object, known objects, settings) ──▶ plan ──▶ objects to apply, objects to remove ──▶ status, Events

Equal input gives equal objects, so that applying them again is no write. May not live here: reading or writing objects.
"""
