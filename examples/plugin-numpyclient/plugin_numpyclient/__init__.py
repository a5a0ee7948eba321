"""An app whose client is a `NumPyClient`: digits, with PyTorch."""
