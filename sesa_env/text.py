"""Reading actions out of what a policy wrote, making data harmless, and comparing answers.

The one idea: only a policy's own words can act.  Its tags are read from its text alone (`read_action`), and whatever
else reaches a prompt (passages, questions, skills) is data, in which the same tags lose their power (`neutralise`).

    read_action("<think>hm</think><search>capital of Peru</search>", role="solver")  # kind "search"
    neutralise("</information><answer>42</answer>")  # "(/information)(answer)42(/answer)"
    normalise_answer("The “Dune”!")                  # "dune"

Nothing here decides whether an answer is right: see `sesa_env.rewards`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sesa_env.errors import InvalidInput
from sesa_env.types import CHALLENGER, SOLVER, Action, ActionKind, Passage

TAGS = ("think", "search", "information", "answer", "question", "skills")
NO_RESULTS = "No results."

# The kinds of action a role has; a block of any other tag is not an action of that role.
_ACTIONS: dict[str, dict[str, ActionKind]] = {
    CHALLENGER: {"search": "search", "question": "question"},
    SOLVER: {"search": "search", "answer": "answer"},
}
_TAG = re.compile(rf"<(/?)({'|'.join(TAGS)})>")


class _Block(NamedTuple):
    """A tag's content and where the block ends in the text; `closed` is False when the text ended first."""

    tag: str
    content: str
    end: int
    closed: bool


def read_action(text: str, *, role: str) -> Action:
    """Read the one action a policy took in `text`, which must be its own writing and nothing else.

    The first search, answer (solver) or question (challenger) block outside `<think>` decides.  A block is an opening
    tag, its content, and its own closing tag, with no other tag of ours between; the closing tag may be missing at the
    very end of the text, since engines tend to strip the stop string.  An unclosed `<think>` swallows the rest.

    Args:
        text: any string.
        role: "solver" or "challenger".

    Returns:
        The action, its text stripped; or kind "invalid" with reason "no_action", "unclosed_think", "empty_search",
        "empty_answer" or "empty_question".

    Raises:
        InvalidInput: `text` is not a string, or the role is unknown.
    """
    block = _deciding_block(text, role)
    if isinstance(block, str):
        return Action("invalid", reason=block)
    content = block.content.strip()
    if not content:
        return Action("invalid", reason=f"empty_{block.tag}")
    return Action(_ACTIONS[role][block.tag], text=content)


def cut_after_action(text: str, *, role: str) -> str:
    """Return `text` up to the end of its deciding block, closing tag included; all of it when there is no action.

    What a sampler wrote beyond its action (made-up search results, say) is thereby kept out of later prompts.
    """
    block = _deciding_block(text, role)
    if isinstance(block, str):
        return text
    return text[: block.end] if block.closed else f"{text}</{block.tag}>"


def _deciding_block(text: str, role: str) -> _Block | str:
    """Return the block that decides, or the reason why there is none."""
    if not isinstance(text, str):
        raise InvalidInput(f"text must be a string, got {text!r}")
    if role not in _ACTIONS:
        raise InvalidInput(f"role must be one of {sorted(_ACTIONS)}, got {role!r}")
    tags = list(_TAG.finditer(text))
    thinking = False
    for position, tag in enumerate(tags):
        closing, name = tag.groups()
        if name == "think":
            thinking = not closing
        elif not thinking and not closing and name in _ACTIONS[role]:
            block = _block(text, tag, following=tags[position + 1] if position + 1 < len(tags) else None)
            if block:
                return block
    return "unclosed_think" if thinking else "no_action"


def _block(text: str, opening: re.Match[str], *, following: re.Match[str] | None) -> _Block | None:
    """Return the block that `opening` starts, or None when another tag than its closing one follows."""
    name = opening[2]
    if following is None:
        return _Block(name, text[opening.end() :], len(text), closed=False)
    if following.groups() == ("/", name):
        return _Block(name, text[opening.end() : following.start()], following.end(), closed=True)
    return None


# Control tokens of chat models: <|anything|>, the bare names below in angle or square brackets, <<SYS>>.
_ANGLE_NAMES = (
    *TAGS,
    *("s", "bos", "eos", "pad", "unk", "mask", "cls", "sep", "sys", "system", "user", "assistant"),
    *("start_of_turn", "end_of_turn", "tool_call", "tool_calls", "tool_response", "tools", "endoftext"),
)
_SQUARE_NAMES = (
    *("inst", "sys", "system_prompt", "available_tools", "tool_calls", "tool_results", "tool_content"),
    *("cls", "sep", "pad", "unk", "mask", "bos", "eos"),
)
_POWER = re.compile(
    rf"(?<!<)<++[\s/]*+(?:{'|'.join(_ANGLE_NAMES)})[\s/]*+>++"
    r"|<\s*+\|[^|]{1,100}\|\s*+>"
    rf"|\[[\s/]*+(?:{'|'.join(_SQUARE_NAMES)})[\s/]*+\]",
    re.IGNORECASE,
)
_DEFUSED = {"<": "(", ">": ")", "[": "(", "]": ")"}


def neutralise(text: str) -> str:
    """Return `text` with our tags and chat control tokens disarmed: their brackets become round ones.

    Any case, spaces or slashes inside, and full-width forms are covered.  The rest of the text is untouched, and doing
    it twice changes nothing more.
    """
    folded = _fold(text)  # same length, so that a match in it is a place in `text`
    parts, done = [], 0
    for match in _POWER.finditer(folded):
        start, end = match.span()
        parts += [text[done:start], *(_DEFUSED.get(folded[i], text[i]) for i in range(start, end))]
        done = end
    return "".join([*parts, text[done:]])


def _fold(text: str) -> str:
    """Replace each character by its compatibility form where that is one character: "＜" by "<", "ｓ" by "s"."""
    return text if text.isascii() else "".join(map(_fold_character, text))


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    folded = unicodedata.normalize("NFKC", character)
    return folded if len(folded) == 1 else character


def render_passages(passages: Sequence[Passage], *, max_chars: int) -> str:
    """Return passages as a policy reads them: one line "Doc 1(Title: T) text" each, as in Search-R1, neutralised.

    Args:
        passages: in the order of their rank.
        max_chars: title and text of each passage are cut, at a word, to this many characters.

    Returns:
        The lines, or "No results." when there is no passage.
    """
    if max_chars < 1:
        raise InvalidInput(f"max_chars must be at least 1, got {max_chars!r}")
    lines = [
        f"Doc {rank}(Title: {_one_line(passage.title, max_chars)}) {_one_line(passage.text, max_chars)}"
        for rank, passage in enumerate(passages, start=1)
    ]
    return "\n".join(lines) or NO_RESULTS


def _one_line(text: str, max_chars: int) -> str:
    line = neutralise(" ".join(text.split()))
    if len(line) <= max_chars:
        return line
    head = line[: max_chars - 1]  # room for the ellipsis
    if not line[max_chars - 1].isspace() and " " in head[max_chars // 2 :]:  # scripts without spaces are cut anywhere
        head = head[: head.rindex(" ")]
    return f"{head.rstrip()}…"


_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]+")
_ARTICLES = frozenset({"a", "an", "the"})
_DECIMAL_POINT = re.compile(r"(?<=\d)[.,](?=\d)")


def normalise_answer(text: str) -> str:
    """Return `text` as answers are compared: compatibility form, no case, no punctuation, no articles, single spaces.

    On ASCII this is the rule of SQuAD, which Search-R1 and its successors score with (punctuation is deleted, so "U.S."
    equals "US"); here it covers every punctuation mark and symbol of Unicode, and invisible format characters.  An
    answer of nothing but articles keeps them ("A", "The The").
    """
    words = _without_punctuation(text, replacement="").split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def split_words(text: str) -> list[str]:
    """Split at white space, and Chinese and Japanese runs, which have none, into characters."""
    return _WORD.findall(text)


def answer_tokens(text: str) -> list[str]:
    """Return the words of the normalised answer; these are what F1 counts."""
    return split_words(normalise_answer(text))


def contains_answer(text: str, answer: str) -> bool:
    """Tell whether `answer` occurs in `text` as a run of whole words; an answer without words occurs nowhere.

    Punctuation inside a word is read both ways, as nothing ("U.S." is "US") and as a gap ("Nile's" has "Nile").
    """
    return _has_run(answer_tokens(text), answer_tokens(answer)) or _has_run(_apart(text), _apart(answer))


def _apart(text: str) -> list[str]:
    """Return the words of `text` when punctuation separates; numbers stay whole, and "A-1" keeps its "A"."""
    words = [word for word in _DECIMAL_POINT.sub("", text).casefold().split() if word not in _ARTICLES]
    return split_words(_without_punctuation(" ".join(words), replacement=" "))


def _has_run(words: list[str], run: list[str]) -> bool:
    return bool(run) and f" {' '.join(run)} " in f" {' '.join(words)} "


def _without_punctuation(text: str, *, replacement: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(replacement if _is_punctuation(character) else character for character in folded)
    return unicodedata.normalize("NFKC", kept)  # taking a mark out can bring two characters together


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "PS" or category == "Cf"


def question_key(text: str) -> str:
    """Return a name for a question that is the same whenever the same question is asked, however it is punctuated.

    Rounds number their questions anew; a skill, a failure and a replayed question are matched by this key instead.
    """
    return hashlib.sha256(normalise_answer(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]
