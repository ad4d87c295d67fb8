"""What this package raises when it is asked for something impossible."""

from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting that cannot be: names the key, the value and what was expected.

    ``candidates`` are the values that would have been valid, for whoever wants to name the nearest one.
    """

    def __init__(self, key: str, value: object, expected: str, candidates: Iterable[str] = ()):
        self.key = key
        self.value = value
        self.expected = expected
        self.candidates = tuple(candidates)
        super().__init__(f"{key}={value!r}: expected {expected}")
