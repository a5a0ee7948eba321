"""A run's records, its folder, and the verification of both."""

__all__: list[str] = []
