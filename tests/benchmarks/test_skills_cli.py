"""`sesa skills`: what it prints of a bank, as tables and as JSON, and what it refuses."""

import json
from functools import partial

import pytest

from sesa_env.types import Action, Trajectory, Turn
from skill_memory import Failure, MemorySettings, Skill, SkillBank, Use


@pytest.fixture
def sesa(sesa, monkeypatch, tmp_path):
    """Run `sesa skills` in the test's folder and return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return partial(sesa, "skills")


@pytest.fixture
def run(tmp_path):
    """The folder of a run whose bank has lived: rules distilled a failure, and a skill that hurt was evicted."""
    folder = tmp_path / "run"
    folder.mkdir()
    bank = SkillBank(MemorySettings(distil_every=10, min_waiting=1), folder / "bank.sqlite")
    doomed = bank.admit(Skill("", "Guess [bold]boldly[/bold].", ("any",), "", ("{name}",), "luck"), step=2).skill_id
    bank.credit([Use(f"q{step}", (doomed, "seed-date"), 0.0, step=step) for step in (3, 4, 5)])
    bank.credit([Use("q6", ("seed-stop",), 1.0, step=6)])
    turns = (
        Turn(text="<search>bridge</search>", action=Action("search", "bridge")),
        Turn(text="<search>bridge</search>", action=Action("search", "bridge")),
    )
    lost = Trajectory("q7/solver_0", "solver_0", turns, "max_turns", None, reward=0.0)
    bank.offer(Failure("q7", "When was the bridge opened?", ("1912",), lost, 0.4, step=7))
    assert bank.consolidate(step=10).evicted == (doomed,)
    bank.close()
    return folder


def test_list_puts_what_helped_first(sesa, run):
    code, out, _ = sesa("list", "run")
    assert code == 0
    assert out.splitlines()[0].split() == ["skill", "category", "net", "shown", "what", "it", "says"]
    assert out.splitlines()[1].startswith("seed-stop")
    assert "seed-date" in out
    assert len(json.loads(sesa("list", "run", "--json")[1])) == 15 + len(admitted(run)) - 1
    assert [s["id"] for s in json.loads(sesa("list", "run", "--limit", 1, "--json")[1])] == ["seed-stop"]
    assert {s["category"] for s in json.loads(sesa("list", "run", "--category", "dates", "--json")[1])} == {"dates"}


def admitted(run):
    """Ids of the skills that are no seeds, evicted ones included."""
    with_bank = SkillBank(MemorySettings(), run / "bank.sqlite")
    ids = [event.skill_id for event in with_bank._store.events() if event.kind == "admit" and event.cause != "seed"]
    with_bank.close()
    return ids


def test_markup_in_a_skill_is_text(sesa, run):
    doomed = admitted(run)[0]
    assert "Guess [bold]boldly[/bold]." in sesa("list", "run@5")[1]
    assert "Guess [bold]boldly[/bold]." in sesa("show", "run@5", doomed)[1]


def test_show_prints_a_skill_whole(sesa, run):
    code, out, _ = sesa("show", "run", "seed-date")
    assert code == 0
    assert "0/3" in out
    assert "- Name the event in the query" in out
    told = json.loads(sesa("show", "run", "seed-date", "--json")[1])
    assert told["usage"] == {"retrieved": 3, "helped": 0, "hurt": 3}
    code, _, err = sesa("show", "run", admitted(run)[0])
    assert code == 2
    assert "was evicted at step 10; an earlier @STEP has it" in err
    assert sesa("show", "run", "nothing")[0] == 2


def test_search_ranks_by_cosine(sesa, run):
    found = json.loads(sesa("search", "run", "In what year was the mill founded?", "-k", 3, "--json")[1])
    assert found[0]["id"] == "seed-date"
    assert [one["cosine"] for one in found] == sorted((one["cosine"] for one in found), reverse=True)
    assert "seed-date" in sesa("search", "run", "In what year was the mill founded?")[1].splitlines()[1]


def test_diff_tells_two_steps_apart(sesa, run):
    code, out, _ = sesa("diff", "run@5", "run")
    assert code == 0
    new = admitted(run)[1:]
    assert out.splitlines()[-1] == f"{len(new)} came, 1 went, 1 changed"
    told = json.loads(sesa("diff", "run@5", "run", "--json")[1])
    assert [skill["id"] for skill in told["came"]] == new
    assert [skill["id"] for skill in told["went"]] == [admitted(run)[0]]
    assert told["changed"][0]["id"] == "seed-stop"


def test_history_tells_why_a_skill_came_and_went(sesa, run):
    doomed = admitted(run)[0]
    lines = [line.split() for line in sesa("history", "run", doomed)[1].splitlines()[1:]]
    assert lines[0] == ["2", "admit", "by", "hand"]
    assert lines[-1][:3] == ["10", "evict", "harmful"]
    assert [moment["step"] for moment in json.loads(sesa("history", "run", doomed, "--json")[1])] == [2, 3, 4, 5, 10]


def test_stats_counts_and_draws(sesa, run, tmp_path):
    told = json.loads(sesa("stats", "run", "--plot", "life.png", "--json")[1])
    assert (tmp_path / "life.png").read_bytes().startswith(b"\x89PNG")
    assert told["skills"] == 15 + len(admitted(run)) - 1
    assert told["seeds"] == 15
    assert told["evicted"] == {"harmful": 1}
    assert told["admitted"]["seed"] == 15
    assert told["questions"] == {"hurt": 3, "helped": 1}
    assert told["growth"][-1]["size"] == told["skills"]
    assert "evicted: harmful" in sesa("stats", "run")[1]


def test_stats_of_json_lines_has_no_history_to_draw(sesa, run):
    sesa("export", "run", "skills.jsonl")
    code, _, err = sesa("stats", "skills.jsonl", "--plot", "life.png")
    assert code == 2
    assert "has no history to draw" in err
    assert sesa("stats", "skills.jsonl")[0] == 0


def test_export_and_import_make_an_equal_bank(sesa, run, tmp_path):
    assert sesa("export", "run", "skills.jsonl")[0] == 0
    code, _, err = sesa("export", "run", "skills.jsonl")
    assert (code, "must be a new file" in err) == (2, True)
    code, out, _ = sesa("import", "other.sqlite", "skills.jsonl")
    assert code == 0
    assert out == f"{14 + len(admitted(run))} skills added to other.sqlite\n"
    assert sesa("diff", "run", "other.sqlite")[1].splitlines()[-1].startswith("0 came, 0 went")


def test_import_refuses_a_file_by_line_and_changes_nothing(sesa, run, tmp_path):
    sesa("export", "run", "skills.jsonl")
    before = sesa("list", "run", "--json")[1]
    code, _, err = sesa("import", "run", "skills.jsonl")
    assert code == 2
    assert "skills.jsonl:1: refused as novel: same text as seed-alias" in err
    assert sesa("list", "run", "--json")[1] == before
    text = (tmp_path / "skills.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "bad.jsonl").write_text("\n".join([*text, '{"schema": 2}']), encoding="utf-8")
    code, _, err = sesa("import", "other.sqlite", "bad.jsonl")
    assert (code, f"bad.jsonl:{len(text) + 1}: schema of a skill must be 1, got 2" in err) == (2, True)
    assert not list(tmp_path.glob("other*"))
    assert sesa("import", "other.sqlite", "absent.jsonl")[0] == 2


@pytest.mark.parametrize("command", [["list"], ["stats"], ["show", "x"], ["history", "x"], ["search", "x"]])
def test_what_is_no_bank_is_one_line_on_stderr(sesa, command):
    code, out, err = sesa(command[0], "nowhere", *command[1:])
    assert (code, out) == (2, "")
    assert err.startswith("sesa: no bank at 'nowhere'")
    assert len(err.splitlines()) == 1
