"""Messages between server and clients, and everything this package uses of Flower's internals."""

__all__: list[str] = []
