"""An app on Flower's Message API: digits, with PyTorch."""
