"""The data sets that a user has: tables, folders of images, Hugging Face; read once, and checked."""

__all__: list[str] = []
