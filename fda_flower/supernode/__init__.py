"""A site's processes: the SuperNode, its launcher, and the resident worker."""

__all__: list[str] = []
