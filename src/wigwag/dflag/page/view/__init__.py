"""The flags page for people: HTML without anything from elsewhere."""
