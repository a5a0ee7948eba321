"""An app whose clients are in scikit-learn and NumPy, with nothing of `fda_flower` in them."""
