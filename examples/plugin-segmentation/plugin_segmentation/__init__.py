"""A data set of images with masks, and a network that returns the pixels of a mask."""
