"""What travels between server and clients, and all that this package needs of Flower's insides."""

__all__: list[str] = []
