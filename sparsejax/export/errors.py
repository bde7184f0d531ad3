"""What goes wrong with exported programs."""


class LayoutError(ValueError):
    """A program that cannot be written down, or bytes that are not one, or not for this version, processor or shapes."""
