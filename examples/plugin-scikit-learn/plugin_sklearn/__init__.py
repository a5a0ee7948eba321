"""An app whose clients are in scikit-learn and NumPy, which import nothing from `fda_flower`."""
