"""A run: its settings, its method and the method's needs, its network and its model folder."""

__all__: list[str] = []
