"""Registries, options as text, optional packages, and words."""

__all__: list[str] = []
