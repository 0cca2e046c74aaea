"""The custom resources `core.openfeature.dev/v1beta1`: a record for each kind, and definitions (CRDs) made of them.

A record parses objects, and `crd` renders its fields as a schema, so both cannot disagree. The schemas accept every
manifest that open-feature-operator accepts, and more. May not live here: what objects mean for pods.
"""
