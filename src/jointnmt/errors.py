"""Errors that a user can correct, each with its exit code.

The message is one paragraph: what is wrong, where (file, line, key), and what to do next.
"""


class JointNMTError(Exception):
    """Base of the errors that a user can correct."""

    exit_code = 1


class ConfigurationError(JointNMTError):
    """Wrong usage or a wrong configuration."""

    exit_code = 2


class DataError(JointNMTError):
    """Bad input data: an unreadable file, a malformed line, texts that are not parallel."""

    exit_code = 3


class ModelError(JointNMTError):
    """A missing, damaged or incompatible model or checkpoint."""

    exit_code = 4


class MissingPackageError(JointNMTError):
    """A required package is not installed (most belong to an extra of this package), or is broken."""

    exit_code = 5


class LostProcessError(JointNMTError):
    """A cooperating process has ended, or cannot be reached."""

    exit_code = 6


def reason(error: BaseException) -> str:
    """The text of an exception, without number and path if it is the system's, for a message that names the file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
