"""The same federation with the strategy Mixture and clients of fda-flower."""
