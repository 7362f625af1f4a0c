"""The token record: what was sampled is what is trained.

Text is for tools; a policy learns from the very ids it wrote.  `TokenSequence` keeps ids, the mask of who wrote them
and their log-probabilities together, so that the three can only grow or be cut as one.  The mask comes from who
produced a token, never from searching for marker text.

    sequence = TokenSequence()
    sequence.append_context(prompt_ids)
    sequence.append_written(completion.token_T, completion.logp_T)
    trajectory = sequence.freeze(episode="q7/solver_0")

Nothing here tokenises, pads or knows a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from sesa_env.errors import InvalidInput

LOGP_ROUNDING = 1e-3
"""How far above zero a log-probability may lie by rounding in the sampler's number format."""


@dataclass(frozen=True, slots=True)
class TokenTrajectory:
    """One attempt in tokens, complete and unchangeable.

    Attributes:
        episode: name of the attempt, as in its views.
        token_T: every id the policy saw or wrote, in order.
        written_T: True where the policy wrote the token, False for prompt and observations.
        logp_T: log-probability of a written token when it was sampled; 0.0 elsewhere.
        prompt_length: how many tokens came before the first written one.
        skill_ids: the skills the prompt showed.
        snapshot_id: the state of the skill memory they came from.
        truncated: whether the attempt ended because its context was full.

    Raises:
        InvalidInput: the fields do not fit each other, or a written token has no usable log-probability.
    """

    episode: str
    token_T: tuple[int, ...]
    written_T: tuple[bool, ...]
    logp_T: tuple[float, ...]
    prompt_length: int
    skill_ids: tuple[str, ...] = ()
    snapshot_id: str = ""
    truncated: bool = False

    def __post_init__(self) -> None:
        lengths = (len(self.token_T), len(self.written_T), len(self.logp_T))
        if len(set(lengths)) != 1:
            raise InvalidInput(
                f"token_T, written_T and logp_T of {self.episode!r} must be equally long, got {lengths!r}"
            )
        if self.prompt_length != _leading_context(self.written_T):
            raise InvalidInput(
                f"prompt_length of {self.episode!r} must be {_leading_context(self.written_T)}, the number of tokens "
                f"before the first written one, got {self.prompt_length!r}"
            )
        for written, logp in zip(self.written_T, self.logp_T, strict=True):
            if written:
                _check_logp(logp)
            elif logp != 0.0:
                raise InvalidInput(f"logp_T of {self.episode!r} must be 0.0 where nothing was written, got {logp!r}")

    def __len__(self) -> int:
        """How many tokens there are, context included."""
        return len(self.token_T)

    @property
    def written_count(self) -> int:
        """How many tokens the policy wrote."""
        return sum(self.written_T)


class TokenSequence:
    """A trajectory that is still growing: ids, producer mask and log-probabilities, changed only together."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._written: list[bool] = []
        self._logps: list[float] = []

    def __len__(self) -> int:
        """How many tokens there are so far."""
        return len(self._tokens)

    @property
    def token_T(self) -> tuple[int, ...]:
        """All ids so far: the prompt of the next generation."""
        return tuple(self._tokens)

    @property
    def written_T(self) -> tuple[bool, ...]:
        """True where the policy wrote the token."""
        return tuple(self._written)

    @property
    def logp_T(self) -> tuple[float, ...]:
        """Log-probabilities at sampling, 0.0 where nothing was written."""
        return tuple(self._logps)

    def append_context(self, token_T: Iterable[int]) -> None:
        """Add tokens the policy only reads: a prompt or an observation.

        Raises:
            InvalidInput: an id is negative; nothing was added.
        """
        tokens = _ids(token_T)
        self._extend(tokens, [False] * len(tokens), [0.0] * len(tokens))

    def append_written(self, token_T: Iterable[int], logp_T: Iterable[float]) -> None:
        """Add tokens the policy wrote, each with the log-probability it was sampled with.

        Raises:
            InvalidInput: the two differ in length, an id is negative, or a log-probability is not a finite number of at
                most zero; nothing was added.
        """
        tokens, logps = _ids(token_T), [float(logp) for logp in logp_T]
        if len(tokens) != len(logps):
            raise InvalidInput(f"logp_T must have one entry for each of the {len(tokens)} tokens, got {len(logps)}")
        for logp in logps:
            _check_logp(logp)
        self._extend(tokens, [True] * len(tokens), logps)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens and forget the rest.

        Raises:
            InvalidInput: `length` is negative or beyond the end.
        """
        if not 0 <= length <= len(self):
            raise InvalidInput(f"length must lie in [0, {len(self)}], got {length!r}")
        del self._tokens[length:], self._written[length:], self._logps[length:]

    def freeze(
        self, *, episode: str, skill_ids: Sequence[str] = (), snapshot_id: str = "", truncated: bool = False
    ) -> TokenTrajectory:
        """Return an unchangeable copy; this sequence may go on growing."""
        return TokenTrajectory(
            episode=episode,
            token_T=self.token_T,
            written_T=self.written_T,
            logp_T=self.logp_T,
            prompt_length=_leading_context(self._written),
            skill_ids=tuple(skill_ids),
            snapshot_id=snapshot_id,
            truncated=truncated,
        )

    def _extend(self, tokens: list[int], written: list[bool], logps: list[float]) -> None:
        self._tokens += tokens
        self._written += written
        self._logps += logps


def repetition(trajectory: TokenTrajectory, *, size: int = 4) -> float:
    """Return the share of written n-grams that the policy had written before in this attempt.

    Only runs of written tokens count, so a passage that was retrieved twice is no repetition.  0.0 when nothing is long
    enough to hold an n-gram.

    Args:
        trajectory: the attempt.
        size: tokens in an n-gram.
    """
    if size < 1:
        raise InvalidInput(f"size must be at least 1, got {size!r}")
    grams = [run[i : i + size] for run in _written_runs(trajectory) for i in range(len(run) - size + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def _written_runs(trajectory: TokenTrajectory) -> list[tuple[int, ...]]:
    runs: list[tuple[int, ...]] = []
    start = 0
    for end in range(1, len(trajectory) + 1):
        if end < len(trajectory) and trajectory.written_T[end] == trajectory.written_T[start]:
            continue
        if trajectory.written_T[start]:
            runs.append(trajectory.token_T[start:end])
        start = end
    return runs


def _leading_context(written_T: Sequence[bool]) -> int:
    return next((i for i, written in enumerate(written_T) if written), len(written_T))


def _ids(token_T: Iterable[int]) -> list[int]:
    tokens = [int(token) for token in token_T]
    for token in tokens:
        if token < 0:
            raise InvalidInput(f"token ids must not be negative, got {token!r}")
    return tokens


def _check_logp(logp: float) -> None:
    if not -inf < logp <= LOGP_ROUNDING:
        raise InvalidInput(f"the log-probability of a written token must be finite and at most 0, got {logp!r}")
