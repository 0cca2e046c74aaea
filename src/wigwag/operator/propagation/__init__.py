"""How far a change of a FeatureFlag has come: who has to be asked, one request to one agent, and what follows from it.

Nothing here has a queue or writes anything: that is `controllers.propagation`.
"""
