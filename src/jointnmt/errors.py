"""Errors that a user can mend, each with the exit code of the command line.

The message of such an error is one paragraph: what is wrong, where (file, line, key), and what to do next.
"""


class JointNMTError(Exception):
    """Something the user can mend; the base of all errors that this package raises on purpose."""

    exit_code = 1


class ConfigurationError(JointNMTError):
    """Wrong usage or a wrong configuration."""

    exit_code = 2


class DataError(JointNMTError):
    """Bad input data: an unreadable file, a broken line, texts that do not belong together."""

    exit_code = 3


class ModelError(JointNMTError):
    """A missing, damaged or incompatible model or checkpoint."""

    exit_code = 4


class MissingPackageError(JointNMTError):
    """A package that the work needs is not installed: it belongs to an extra of this package."""

    exit_code = 5
