"""Who may ask for what, from where and how often."""
