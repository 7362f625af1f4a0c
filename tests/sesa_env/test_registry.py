"""Names: a part that another distribution declares is found, and never hidden behind one of the same name."""

import subprocess
import sys
import textwrap

import gymnasium as gym
import pytest

from sesa_env.errors import DuplicateName, UnknownName
from sesa_env.registry import Registry

MODULE = """
import gymnasium

def part():
    return "declared"

class Env(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that makes a distribution with entry points, as if it were installed."""

    def make(name, entry_points):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(textwrap.dedent(entry_points), encoding="utf-8")
        (tmp_path / f"{name}_parts.py").write_text(MODULE, encoding="utf-8")

    monkeypatch.syspath_prepend(tmp_path)
    return make


@pytest.fixture
def registry():
    table = Registry("toy", group="sesa_env.toys")
    table.register("own", dict)
    table.register("late", "collections:Counter")
    return table


def test_a_declared_part_is_found_by_name(install, registry):
    install("stranger", "[sesa_env.toys]\nfar = stranger_parts:part\n")
    assert registry.names() == ["far", "late", "own"]
    assert [registry.make("far") for _ in range(2)] == ["declared"] * 2
    assert "stranger_parts" in sys.modules
    assert registry.make("late") == {}
    with pytest.raises(UnknownName, match="no toy named 'near'; known: far, late, own"):
        registry.get("near")


@pytest.mark.parametrize("name", ["own", "late"])
def test_a_built_in_never_hides_a_declared_part(install, registry, name):
    install("rival", f"[sesa_env.toys]\n{name} = rival_parts:part\n")
    for _ in range(2):
        with pytest.raises(
            DuplicateName, match=rf"toy '{name}' is declared .* built in .* rival_parts:part of rival; un"
        ):
            registry.get(name)
    assert registry.make({"own": "late", "late": "own"}[name]) == {}  # the others are not in its way


def test_two_distributions_that_declare_one_name_are_both_named(install, registry):
    install("first", "[sesa_env.toys]\nfar = first_parts:part\n")
    install("second", "[sesa_env.toys]\nfar = second_parts:part\n")
    with pytest.raises(DuplicateName, match=r"(first.*second|second.*first)"):
        registry.get("far")


def test_nothing_of_another_group_counts(install, registry):
    install("other", "[sesa_env.games]\nown = other_parts:part\n")
    assert registry.make("own") == {}


def test_a_rival_of_a_built_in_retriever_is_told_by_the_environment(install):
    install("hijack", "[sesa_env.retrievers]\nbm25 = hijack_parts:part\n")
    with pytest.raises(DuplicateName, match="hijack"):
        gym.make("SESA-Solve-v0", corpus="atlas:9").reset(seed=0)


# Environments


@pytest.fixture
def environments():
    """The module that registers, and Gymnasium's table as it was afterwards."""
    from sesa_env import environments

    before = dict(gym.registry)
    yield environments
    gym.registry.clear()
    gym.registry.update(before)


def test_declared_environments_are_registered_and_not_imported(install, environments):
    install("maker", "[sesa_env.environments]\nMaker-v0 = maker_parts:Env\n")
    assert environments.register_environments() == ["Maker-v0"]
    assert "maker_parts" not in sys.modules
    assert gym.make("Maker-v0").reset(seed=0) == (0, {})
    assert environments.register_environments() == ["Maker-v0"]  # once more changes nothing


def test_an_environment_does_not_take_anothers_id(install, environments):
    install("thief", "[sesa_env.environments]\nSESA-Solve-v0 = thief_parts:Env\n")
    with pytest.raises(DuplicateName, match=r"'SESA-Solve-v0' is sesa_env\.envs\.solve:SolveEnv already"):
        environments.register_environments()


def test_making_one_through_the_module_registers_it_and_importing_the_package_does_not(install, tmp_path):
    install("fresh", "[sesa_env.environments]\nFresh-v0 = fresh_parts:Env\n")
    code = (
        "import sys, gymnasium, sesa_env\n"
        "assert 'Fresh-v0' not in gymnasium.registry\n"
        "env = gymnasium.make('sesa_env.environments:Fresh-v0', disable_env_checker=True)\n"
        "print(env.reset()[0], 'torch' in sys.modules)"
    )
    path = "import sys; sys.path.insert(0, sys.argv[1])\n"
    done = subprocess.run([sys.executable, "-c", path + code, tmp_path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 False\n", "")
