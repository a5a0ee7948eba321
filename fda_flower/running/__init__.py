"""A configuration, run by an engine: alone, many at a time, or with attackers."""

__all__: list[str] = []
