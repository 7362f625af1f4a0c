"""Every error this project raises on purpose, so that callers can tell a user's mistake from a bug.

    SesaError
    ├── InvalidInput (ValueError)            an argument breaks its rule
    ├── SettingsError (ValueError)           a setting is unknown or out of range
    ├── UnknownName (LookupError)            no part of that name is registered
    ├── DuplicateName (ValueError)           the name is taken
    ├── MissingDependency (ImportError)      an optional package is not installed
    ├── BackendUnavailable (RuntimeError)    Java is missing, or was started with other options
    ├── ModelNotFound (LookupError)          no model at that path or of that name
    ├── CorpusError (ValueError)             a corpus or question file is missing, empty or malformed
    ├── IndexMismatch (ValueError)           the index is stale, foreign or half-written
    ├── SearchUnavailable (RuntimeError)     the search tool failed; the attempt is masked, not scored
    │   └── SearchTimeout (TimeoutError)
    ├── CheckUnavailable (RuntimeError)      a check of a question could not be made; the round is void
    ├── OutOfTurn (RuntimeError)             a seat acted when it was not its turn, or after the end
    ├── PolicyMismatch (RuntimeError)        sampler and learner disagree about the same tokens
    ├── TrainingStopped (RuntimeError)       a figure of a run was past its limit for too long
    └── StoreError (RuntimeError)            the skill store cannot be used as it is
        ├── StoreCorrupt
        ├── EncoderMismatch
        └── SnapshotMismatch

Each takes one message and nothing else, so each survives a trip through `pickle` to another process.
"""


class SesaError(Exception):
    """Base of all errors raised on purpose."""


class InvalidInput(SesaError, ValueError):
    """An argument breaks its rule; the message names the argument, the rule and the value."""


class SettingsError(SesaError, ValueError):
    """A setting is unknown or out of range; the message lists what is known."""


class UnknownName(SesaError, LookupError):
    """No part of that name is registered; the message lists the names that are."""


class DuplicateName(SesaError, ValueError):
    """A name or id that must be unique was given twice."""


class MissingDependency(SesaError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class BackendUnavailable(SesaError, RuntimeError):
    """A back end cannot start here (no Java, or a Java machine with other options is running)."""


class ModelNotFound(SesaError, LookupError):
    """No model was found at the given path or under the given name."""


class CorpusError(SesaError, ValueError):
    """A corpus or question file is missing, empty or malformed; the message names file and line."""


class IndexMismatch(SesaError, ValueError):
    """An index is stale, belongs to another corpus, or was never finished."""


class SearchUnavailable(SesaError, RuntimeError):
    """The search tool failed; the attempt it happened in is masked from learning and from the solve rate."""


class SearchTimeout(SearchUnavailable, TimeoutError):
    """The search tool did not answer in time."""


class CheckUnavailable(SesaError, RuntimeError):
    """A proposed question could not be checked; the round is void: nobody solves it, and nobody pays for it."""


class OutOfTurn(SesaError, RuntimeError):
    """A seat acted when it was not its turn, or after its attempt had ended."""


class PolicyMismatch(SesaError, RuntimeError):
    """The sampler and the learner give the same tokens too different log-probabilities; no weight was changed."""


class TrainingStopped(SesaError, RuntimeError):
    """A guard stopped a run; the message names the figure, its limit and the last good step."""


class StoreError(SesaError, RuntimeError):
    """The skill store cannot be used as it is."""


class StoreCorrupt(StoreError):
    """The skill store fails its integrity check; nothing was changed."""


class EncoderMismatch(StoreError):
    """Stored vectors were made by another encoder; nothing was changed."""


class SnapshotMismatch(StoreError):
    """The skill bank is not the one the checkpoint was saved with."""
