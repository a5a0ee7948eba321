"""The same project with Mixture: the sources train alone, and the target mixes models."""
