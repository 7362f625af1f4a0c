"""`sesa skills`: look into a bank of skills, take out, put in, and follow its life.

    sesa skills list runs/sesa             # what it knows now
    sesa skills diff runs/sesa@10 runs/sesa@40
    sesa skills stats runs/sesa --plot life.png
    sesa skills mine runs/sesa --out mined.jsonl
    sesa skills calibrate --encoder minilm

A BANK is the folder of a run, a bank's file, or a file of JSON lines; BANK@STEP is the bank as it was at the end of a
training step.  Nothing but `import` writes to one.  With `--json`, a command prints one JSON value.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sesa_env.errors import InvalidInput
from sesa_env.registry import ENCODERS
from skill_memory.bank import SkillBank
from skill_memory.encode import REJECTION, Encoder, calibrate, measure, read_pairs
from skill_memory.history import BANK_FILE, BankFile, by_cause, compare, growth, life, read_bank
from skill_memory.records import skill_to_dict, write_skills
from skill_memory.render import disarm, render_skill
from skill_memory.settings import MemorySettings
from skill_memory.skill import Skill

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look into a bank of skills, and follow its life.")

Bank = Annotated[str, typer.Argument(metavar="BANK", help="Run folder, bank file or JSON lines; BANK@STEP for a step.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of a table.")]
EncoderName = Annotated[str, typer.Option(help="A registered encoder.")]


@app.command("list")
def list_command(
    bank: Bank,
    category: Annotated[str | None, typer.Option(help="Only skills of this category.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most skills, those of the highest net help.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the skills, those that helped most first."""
    skills = [skill for skill in read_bank(bank).skills if category is None or skill.category == category]
    skills = sorted(skills, key=lambda skill: -skill.usage.net)[:limit]
    if as_json:
        _print_json([skill_to_dict(skill) for skill in skills])
        return
    _print_table(("skill", "category", "net", "shown", "what it says"), map(_row, skills))


@app.command("show")
def show_command(bank: Bank, id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Show one skill whole, as a solver would read it and as it is kept."""
    skill = _find(read_bank(bank), id)
    if as_json:
        _print_json(skill_to_dict(skill))
        return
    record = {**skill_to_dict(skill), "usage": _usage(skill), "prompt": render_skill(skill)}
    rows = [(name, "; ".join(value) if isinstance(value, tuple) else value) for name, value in record.items()]
    _print_table(("part", "text"), rows)


@app.command("search")
def search_command(
    bank: Bank,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A question, or any text.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Most skills.")] = 5,
    encoder: EncoderName = "hashing",
    as_json: AsJson = False,
) -> None:
    """Find the skills nearest to a text, as a solver with that question would."""
    skills = read_bank(bank).skills
    found = _nearest(skills, text, ENCODERS.make(encoder))[:k]
    if as_json:
        _print_json([{"cosine": cosine, **skill_to_dict(skill)} for cosine, skill in found])
        return
    rows = ((f"{cosine:.2f}", skill.id, skill.category, skill.description) for cosine, skill in found)
    _print_table(("cosine", "skill", "category", "what it says"), rows)


@app.command("diff")
def diff_command(
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
    as_json: AsJson = False,
) -> None:
    """Compare two banks, or two steps of one: what came, what went, and whose counters changed."""
    came, went, changed = compare(read_bank(before).skills, read_bank(after).skills)
    if as_json:
        pairs = [{"id": new.id, "before": asdict(old.usage), "after": asdict(new.usage)} for old, new in changed]
        _print_json({"came": list(map(skill_to_dict, came)), "went": list(map(skill_to_dict, went)), "changed": pairs})
        return
    rows = [("+", skill.id, _usage(skill), skill.description) for skill in came]
    rows += [("-", skill.id, _usage(skill), skill.description) for skill in went]
    rows += [(" ", new.id, f"{_usage(old)} → {_usage(new)}", new.description) for old, new in changed]
    _print_table(("", "skill", "helped/hurt", "what it says"), rows)
    _print(f"{len(came)} came, {len(went)} went, {len(changed)} changed")


@app.command("export")
def export_command(bank: Bank, out: Annotated[Path, typer.Argument(help="New file of JSON lines.")]) -> None:
    """Write the skills as JSON lines."""
    skills = read_bank(bank).skills
    if out.exists():
        raise InvalidInput(f"out must be a new file, got {str(out)!r}, which exists")
    write_skills(skills, out)
    _print(f"{len(skills)} skills written to {out}")


@app.command("import")
def import_command(
    bank: Annotated[Path, typer.Argument(metavar="BANK", help="Run folder or bank file; made if there is none.")],
    file: Annotated[Path, typer.Argument(help="JSON lines, as `export` writes them.")],
    encoder: EncoderName = "hashing",
) -> None:
    """Put the skills of a file into a bank, through its gates: all of them, or none."""
    path = bank / BANK_FILE if bank.is_dir() else bank
    if not file.is_file():
        raise InvalidInput(f"no file of skills at {str(file)!r}")
    new = not path.exists()
    try:
        with closing(SkillBank(MemorySettings(encoder=encoder, priming=False, distil="none"), path)) as target:
            ids = target.load(file)
    except BaseException:
        if new:
            path.unlink(missing_ok=True)
        raise
    _print(f"{len(ids)} skills added to {path}")


@app.command("history")
def history_command(bank: Bank, id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Tell the life of one skill: when and why it came, how it fared, when and why it went."""
    moments = life(read_bank(bank).events, id)
    if as_json:
        _print_json([moment._asdict() for moment in moments])
        return
    _print_table(("step", "what", "cause", "detail"), moments)


@app.command("stats")
def stats_command(
    bank: Bank,
    plot: Annotated[Path | None, typer.Option(help="Draw size, changes and uses by step into this image.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count what is in a bank, what came and went, what was refused, and how it grew."""
    found = read_bank(bank)
    rows = growth(found.events)
    if plot is not None:
        if not rows:
            raise InvalidInput(f"{bank} has no history to draw")
        _draw(found, plot)
    if as_json:
        _print_json({**_counts(found), "growth": [row._asdict() for row in rows]})
        return
    counts = _counts(found)
    counts["categories"] = len(counts["categories"])
    _print_table(("count", "of what"), [(number, name) for name, number in _flat(counts)])
    changes = [row for row in rows if row.admitted or row.evicted or row.refused]
    if changes:
        _print_table(("step", "size", "came", "went", "refused"), [row[:5] for row in changes])


@app.command("mine")
def mine_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that has been played.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Other settings, such as memory.distil=chat.")
    ] = None,
    out: Annotated[Path, typer.Option(help="New file of JSON lines.")] = Path("mined.jsonl"),
    limit: Annotated[int | None, typer.Option(min=1, help="Most skills; SESA mined 142.")] = None,
) -> None:
    """Distil the failures of a run into skills, through the gates, and write those to a file."""
    from benchmarks.mine import mine

    mined = mine(run, out, limit=limit, overrides=settings or ())
    _print(f"{len(mined.skills)} skills from {mined.failures} failures written to {out}; {mined.waiting} still wait")
    rows = [(number, f"refused: {name}") for name, number in mined.refused.items()]
    rows += [(number, f"cause: {name}") for name, number in mined.causes.items()]
    if rows:
        _print_table(("count", "of what"), rows)


@app.command("calibrate")
def calibrate_command(
    encoder: EncoderName = "hashing",
    rejection: Annotated[float, typer.Option(help="Share of near-copies to keep out.")] = REJECTION,
    as_json: AsJson = False,
) -> None:
    """Find the cosine above which an encoder should call two skills the same, on pairs that were labelled by hand."""
    model: Encoder = ENCODERS.make(encoder)
    pairs = read_pairs()
    found = {
        "calibrated": calibrate(model, pairs, rejection=rejection),
        "in use": measure(model, pairs, model.max_similarity),
    }
    if as_json:
        _print_json({name: asdict(row) for name, row in found.items()})
        return
    rows = [
        (name, f"{row.threshold:.2f}", f"{row.near_refused} of {row.near}", f"{row.distinct_refused} of {row.distinct}")
        for name, row in found.items()
    ]
    _print_table((encoder, "threshold", "near-copies refused", "distinct refused"), rows)


def _find(bank: BankFile, id: str) -> Skill:
    for skill in bank.skills:
        if skill.id == id:
            return skill
    gone = next((event.step for event in bank.events if event.kind == "evict" and event.skill_id == id), None)
    if gone is None:
        raise InvalidInput(f"no skill {id!r} in {bank.path}")
    raise InvalidInput(f"skill {id!r} of {bank.path} was evicted at step {gone}; an earlier @STEP has it")


def _nearest(skills: Sequence[Skill], text: str, encoder: Encoder) -> list[tuple[float, Skill]]:
    vector_KD = encoder.encode_passages([skill.text for skill in skills])
    cosine_K = vector_KD @ encoder.encode_queries([text])[0]
    return sorted(zip(map(float, cosine_K), skills, strict=True), key=lambda pair: -pair[0])


def _counts(bank: BankFile) -> dict[str, Any]:
    """Return the figures of a bank; what is counted by cause is a mapping."""
    seeds = sum(skill.is_seed for skill in bank.skills)
    by_kind = {kind: Counter(event.cause for event in bank.events if event.kind == kind) for kind in _COUNTED}
    return {
        "skills": len(bank.skills),
        "seeds": seeds,
        "categories": dict(Counter(skill.category for skill in bank.skills).most_common()),
        **{name: dict(by_kind[kind].most_common()) for kind, name in _COUNTED.items()},
    }


_COUNTED = {"admit": "admitted", "evict": "evicted", "refuse": "refused", "credit": "questions"}
_COUNTED |= {"attribute": "failures", "postpone": "postponed", "trial": "trials"}


def _flat(counts: dict[str, Any]) -> list[tuple[str, int]]:
    """Return names and numbers, those of a mapping with its own name before theirs."""
    rows: list[tuple[str, int]] = []
    for name, value in counts.items():
        if isinstance(value, dict):
            rows += [(f"{name}: {part or 'none'}", number) for part, number in value.items()]
        else:
            rows.append((name, value))
    return rows


def _draw(bank: BankFile, path: Path) -> None:
    """Draw the bank's size, and under it by cause what came and went, what was refused, and how uses turned out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 8.0), layout="constrained")
    FigureCanvasAgg(figure)
    size, change, refused, use = figure.subplots(4, 1, sharex=True, height_ratios=(3, 2, 2, 2))
    rows = growth(bank.events)
    steps = [row.step for row in rows]
    seeds = sum(skill.is_seed for skill in bank.skills)  # which never go
    size.fill_between(steps, [row.size for row in rows], step="post", color="C0", alpha=0.35, label="learned")
    size.fill_between(steps, [seeds] * len(rows), step="post", color="C7", alpha=0.6, label="written by hand")
    size.plot(steps, [row.size for row in rows], drawstyle="steps-post", color="C0")
    size.set_ylabel("skills")
    size.set_ylim(bottom=0)
    changed = [row.step for row in rows if row.admitted or row.evicted or row.refused]
    width = 0.7 * min((right - left for left, right in itertools.pairwise(changed)), default=1)
    came = {cause: counts for cause, counts in by_cause(bank.events, "admit").items() if cause != "seed"}
    _stack(change, came, ("C2", "C8", "C9"), width, prefix="came: ")
    _stack(change, by_cause(bank.events, "evict"), ("C3", "C1"), -width, prefix="went: ")
    change.set_ylabel("came, went")
    _stack(refused, by_cause(bank.events, "refuse"), [f"C{i}" for i in (4, 9, 8, 5, 6, 1, 7, 2, 3, 0)], width)
    refused.set_ylabel("refused")
    uses = by_cause(bank.events, "credit")
    _stack(use, {"helped": uses.get("helped", Counter())}, ("C2",), 0.9)
    _stack(use, {"hurt": uses.get("hurt", Counter())}, ("C3",), -0.9)
    use.set_ylabel("skills shown")
    use.set_xlabel("training step")
    for part in (size, change, refused, use):
        part.axhline(0, color="black", linewidth=0.8)
        part.spines[["top", "right"]].set_visible(False)
        if part.get_legend_handles_labels()[0]:
            part.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    figure.savefig(path, dpi=110)


def _stack(
    part: Any, counts: dict[str, Counter[int]], colors: Sequence[str], width: float, *, prefix: str = ""
) -> None:
    """Draw bars by step, a colour for each cause, one on the other; downwards when the width is negative."""
    base = Counter[int]()
    for (cause, by_step), color in zip(counts.items(), itertools.cycle(colors)):
        steps = sorted(by_step)
        sign = 1 if width > 0 else -1
        heights, bottoms = [sign * by_step[step] for step in steps], [sign * base[step] for step in steps]
        part.bar(steps, heights, abs(width), bottom=bottoms, color=color, label=f"{prefix}{cause}")
        base += by_step


def _row(skill: Skill) -> tuple[object, ...]:
    return skill.id, skill.category, f"{skill.usage.net:+d}", skill.usage.retrieved, skill.description


def _usage(skill: Skill) -> str:
    return f"{skill.usage.helped}/{skill.usage.hurt}"


def _print_table(columns: Sequence[str], rows: Any) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(disarm(str(cell))) for cell in row))  # a bank's texts are not ours, nor is their markup
    Console().print(table)


def _print(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
