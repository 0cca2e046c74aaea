"""Controllers: they watch objects, and make what exists as the plans of `reconcile` say. No decisions live here."""
