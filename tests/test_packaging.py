"""The wheel and the sdist, built from this tree and used from an environment of their own.

The wheel is built from the sdist, so a file that the sdist lacks is missing here, too. The backend is a development
dependency: nothing is downloaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import wigwag

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "wigwag"
UV = shutil.which("uv", path=ROOT / ".cache" / "uv" / "bin") or shutil.which("uv")


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def uv(*arguments: object) -> None:
    assert UV, "uv is not installed: run scripts/check once, which installs it into .cache/uv"
    run(UV, *arguments, "--offline", "--quiet", "--no-config", cwd=ROOT)


def files(folder: Path, root: Path) -> set[str]:
    """All files in a folder, but for what Python leaves there."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix() for path in found}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"wigwag-{wigwag.__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("installed")
    python = folder / "bin" / "python"
    uv("venv", "--allow-existing", "--python", sys.executable, folder)
    uv("pip", "install", "--no-deps", "--python", python, wheel)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    expected = files(PACKAGE, PACKAGE.parent)
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == expected


@pytest.mark.parametrize("pattern", ["proto/*.proto", "proto/descriptors.binpb", "demo.json", "py.typed"])
def test_the_wheel_has_the_data_that_the_code_reads(wheel: Path, pattern: str) -> None:
    names = {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in PACKAGE.glob(pattern)}
    assert names
    with zipfile.ZipFile(wheel) as archive:
        assert {name: archive.read(name) for name in names} == names


def test_the_sdist_has_what_is_needed_to_test_it_and_to_read_about_it(built: Path) -> None:
    top = f"wigwag-{wigwag.__version__}"
    with tarfile.open(built / f"{top}.tar.gz") as archive:
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    folders = {"src", "tests", "bench", "deploy", "docs", "examples", "scripts", "tools", "changelog.d", ".github"}
    documents = {"README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"}
    settings = {"pyproject.toml", "uv.lock", ".gitignore", ".pre-commit-config.yaml", "mkdocs.yml"}
    assert {name.partition("/")[0] for name in names} == folders | documents | settings | {"PKG-INFO"}
    for folder in folders - {"tests"}:  # where the JavaScript clients' packages are installed
        assert files(ROOT / folder, ROOT) <= names
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")} <= names


def test_the_installed_library_loads_and_resolves_a_flag(installed: Path) -> None:
    code = (
        "import wigwag; print(wigwag.__file__)\n"
        "hello = {'state': 'ENABLED', 'variants': {'on': 'world'}, 'defaultVariant': 'on'}\n"
        "print(wigwag.load({'flags': {'hello': hello}}).string('hello', 'nobody'))"
    )
    file, value = run(installed / "bin" / "python", "-I", "-c", code, cwd=installed).split()
    assert Path(file).is_relative_to(installed)
    assert value == "world"


def test_the_installed_command_says_its_version_and_evaluates_the_demo(installed: Path) -> None:
    command = installed / "bin" / "wigwag"
    assert wigwag.__version__ in run(command, "version", cwd=installed)
    assert run(command, "eval", "demo", "new-welcome-banner", cwd=installed).startswith("false   variant off")


def test_the_metadata_names_the_supported_versions_and_no_person_or_host(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"wigwag-{wigwag.__version__}.dist-info/METADATA").decode().partition("\n\n")[0]
    assert "Requires-Python: >=3.11" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert "Author: The wigwag contributors" in metadata
    assert "@" not in metadata
    assert "://" not in metadata
