"""Reading actions out of what a policy wrote, making data harmless, and comparing answers.

The one idea: only a policy's own words can act.  Its tags are read from its text alone (`read_action`), and whatever
else reaches a prompt (passages, questions, skills) is data, in which the same tags lose their power (`neutralise`).
The tags of tools that the rules do not give (`TOOLS`) are no tags at all.

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
from string import punctuation
from typing import NamedTuple

from sesa_env.errors import InvalidInput
from sesa_env.types import CHALLENGER, SOLVER, Action, ActionKind, Passage

TAGS = ("think", "search", "information", "answer", "question", "skills")
TOOLS = ("open", "find")
"""Tags of the tools that rules may give next to search: open a page, find a text in it (`sesa_env.reading`)."""
NO_RESULTS = "No results."

# The kinds of action a role has; a block of any other tag is not an action of that role.
_ACTIONS: dict[str, dict[str, ActionKind]] = {
    CHALLENGER: {"search": "search", "question": "question"},
    SOLVER: {"search": "search", "answer": "answer"},
}
_TOOL_ACTIONS: dict[str, ActionKind] = {"open": "open", "find": "find"}


@lru_cache(maxsize=8)
def _tag(tools: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(/?)({'|'.join((*TAGS, *tools))})>")


def read_action(text: str, *, role: str, tools: tuple[str, ...] = ()) -> Action:
    """Read the one action a policy took in `text`, which must be its own writing and nothing else.

    The first block of a search, a tool, an answer (solver) or a question (challenger) outside `<think>` decides.  A
    block is an opening tag, its content, and its own closing tag, with no other tag of ours between; the closing tag
    may be missing at the very end of the text, since engines tend to strip the stop string.  An unclosed `<think>`
    swallows the rest.

    Args:
        text: any string.
        role: "solver" or "challenger".
        tools: those of `TOOLS` that the rules give.

    Returns:
        The action, its text stripped; or kind "invalid" with reason "no_action", "unclosed_think", or "empty_" and the
        tag of the block that has no content.

    Raises:
        InvalidInput: `text` is not a string, or the role or a tool is unknown.
    """
    return read_words(text, role=role, tools=tools).action


def cut_after_action(text: str, *, role: str, tools: tuple[str, ...] = ()) -> str:
    """Return `text` up to the end of its deciding block, closing tag included; all of it when there is no action.

    What a sampler wrote beyond its action (made-up search results, say) is thereby kept out of later prompts.
    """
    return read_words(text, role=role, tools=tools).own


class Words(NamedTuple):
    """The action in a policy's text, and the text up to the end of it."""

    action: Action
    own: str


def read_words(text: str, *, role: str, tools: tuple[str, ...] = ()) -> Words:
    """Return what `read_action` and `cut_after_action` return, at the price of one."""
    if not isinstance(text, str):
        raise InvalidInput(f"text must be a string, got {text!r}")
    usual, actions = _grammar(role, tools)
    found = usual.match(text)
    if found is None:
        return _read(text, actions, tools)
    tag, content = found.groups()
    return Words(_action(actions[tag], tag, content), found[0])


def _read(text: str, actions: dict[str, ActionKind], tools: tuple[str, ...]) -> Words:
    """Read any text, tag by tag."""
    before, *pieces = _tag(tools).split(text)  # of each tag its slash, its name, and the text up to the next one
    end, thinking = len(before), False
    for at in range(0, len(pieces), 3):
        slash, name, content = pieces[at : at + 3]
        end += len(slash) + len(name) + len("<>") + len(content)
        if name == "think":
            thinking = not slash
        elif name in actions and not slash and not thinking:
            following = pieces[at + 3 : at + 5]
            if following == ["/", name]:
                return Words(_action(actions[name], name, content), text[: end + len(f"</{name}>")])
            if not following:
                return Words(_action(actions[name], name, content), f"{text}</{name}>")
    return Words(Action("invalid", reason="unclosed_think" if thinking else "no_action"), text)


def _action(kind: ActionKind, tag: str, content: str) -> Action:
    stripped = content.strip()
    return Action(kind, stripped) if stripped else Action("invalid", reason=f"empty_{tag}")


@lru_cache(maxsize=8)
def _grammar(role: str, tools: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, ActionKind]]:
    """Return a pattern of what most turns look like, a thought at most and then the deciding block, and all actions.

    The actions are kinds by tag, of a role with these tools.
    """
    if role not in _ACTIONS:
        raise InvalidInput(f"role must be one of {sorted(_ACTIONS)}, got {role!r}")
    if not set(tools) <= set(TOOLS):
        raise InvalidInput(f"tools must be among {TOOLS!r}, got {tools!r}")
    actions = {**_ACTIONS[role], **{tool: _TOOL_ACTIONS[tool] for tool in tools}}
    usual = rf"[^<]*+(?:<think>[^<]*+</think>[^<]*+)?+<({'|'.join(actions)})>([^<]*+)</\1>"
    return re.compile(usual), actions


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


@lru_cache(maxsize=8)
def _power(tools: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        rf"(?<!<)<++[\s/]*+(?:{'|'.join((*_ANGLE_NAMES, *tools))})[\s/]*+>++"
        r"|<\s*+\|[\s\S]{1,100}?\|\s*+>"
        rf"|\[[\s/]*+(?:{'|'.join(_SQUARE_NAMES)})[\s/]*+\]",
        re.IGNORECASE,
    )


_DEFUSED = {"<": "(", ">": ")", "[": "(", "]": ")"}


def neutralise(text: str, *, tools: tuple[str, ...] = ()) -> str:
    """Return `text` with our tags and chat control tokens disarmed: their brackets become round ones.

    So do the tags of the tools given.  Any case, spaces or slashes inside, and full-width forms are covered.  The rest
    of the text is untouched, and doing it twice changes nothing more.
    """
    folded = _fold(text)  # same length, so that a match in it is a place in `text`
    if "<" not in folded and "[" not in folded:
        return text
    parts, done = [], 0
    for match in _power(tools).finditer(folded):
        start, end = match.span()
        parts += [text[done:start], *(_DEFUSED.get(folded[i], text[i]) for i in range(start, end))]
        done = end
    return "".join([*parts, text[done:]])


def _fold(text: str) -> str:
    """Replace each character by its compatibility form where that is one character: "＜" by "<", "ｓ" by "s"."""
    return text if text.isascii() else _BEYOND_ASCII.sub(_folded, text)


_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def _folded(found: re.Match[str]) -> str:
    return _fold_character(found[0])


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    folded = unicodedata.normalize("NFKC", character)
    return folded if len(folded) == 1 else character


def render_passages(passages: Sequence[Passage], *, max_chars: int, tools: tuple[str, ...] = ()) -> str:
    """Return passages as a policy reads them: one line "Doc 1(Title: T) text" each, as in Search-R1, neutralised.

    Args:
        passages: in the order of their rank.
        max_chars: title and text of each passage are cut, at a word, to this many characters.
        tools: those that the rules give; their tags are neutralised too.

    Returns:
        The lines, or "No results." when there is no passage.
    """
    if max_chars < 1:
        raise InvalidInput(f"max_chars must be at least 1, got {max_chars!r}")
    return _rendered(tuple([(passage.title, passage.text) for passage in passages]), max_chars, tools)


@lru_cache(maxsize=1024)  # attempts at a question that search for the same find the same
def _rendered(documents: tuple[tuple[str, str], ...], max_chars: int, tools: tuple[str, ...]) -> str:
    lines = [
        f"Doc {rank}{_document(title, text, max_chars, tools)}" for rank, (title, text) in enumerate(documents, start=1)
    ]
    return "\n".join(lines) or NO_RESULTS


def _document(title: str, text: str, max_chars: int, tools: tuple[str, ...]) -> str:
    head = text[: max_chars + 2]  # as much as decides where to cut, if only single spaces part its words
    line = f"(Title: {title}) {head}"
    if len(title) > max_chars or title[-1:] == " " or not _is_plain(line):
        return f"(Title: {one_line(title, max_chars, tools=tools)}) {one_line(text, max_chars, tools=tools)}"
    if head[-1:] == " ":
        head, line = head[:-1], line[:-1]
    return line if len(head) <= max_chars else f"(Title: {title}) {cut_at_word(head, max_chars)}"


def one_line(text: str, max_chars: int, *, tools: tuple[str, ...] = ()) -> str:
    """Return `text` neutralised, in one line, and cut, at a word, to so many characters."""
    return cut_at_word(neutralise(" ".join(text.split()), tools=tools), max_chars)


def _is_plain(text: str) -> bool:
    """Tell whether single spaces are all the white space of `text`, and no sign of it can open a tag.

    ASCII is asked sign by sign, which takes less than a tenth of the time that a pattern takes.
    """
    if not text.isascii():
        folded = _fold(text)
        return text.isprintable() and "<" not in folded and "[" not in folded and "  " not in text
    return not (
        ("<" in text or "[" in text or "  " in text)
        or ("\n" in text or "\t" in text or "\r" in text or "\v" in text or "\f" in text)
        or ("\x1c" in text or "\x1d" in text or "\x1e" in text or "\x1f" in text)
    )


def cut_at_word(text: str, max_chars: int) -> str:
    """Return `text`, or its beginning and an ellipsis; scripts without spaces are cut anywhere."""
    if len(text) <= max_chars:
        return text
    end = max_chars - 1  # room for the ellipsis
    if not text[end].isspace():
        space = text.rfind(" ", max_chars // 2, end)
        end = end if space < 0 else space
    return f"{text[:end].rstrip()}…"


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
    if text.isascii():
        return text.lower().translate(_ASCII_PUNCTUATION[replacement])
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(replacement if _is_punctuation(character) else character for character in folded)
    return unicodedata.normalize("NFKC", kept)  # taking a mark out can bring two characters together


_ASCII_PUNCTUATION = {replacement: str.maketrans(dict.fromkeys(punctuation, replacement)) for replacement in ("", " ")}


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "PS" or category == "Cf"


def question_key(text: str) -> str:
    """Return a name for a question that is the same whenever the same question is asked, however it is punctuated.

    Rounds number their questions anew; a skill, a failure and a replayed question are matched by this key instead.
    """
    return hashlib.sha256(normalise_answer(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]
