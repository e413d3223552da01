"""The wheel holds all that the package reads, and works where only it is installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_a_wheel_is_built_and_works_without_the_source(tmp_path, monkeypatch):
    build = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    wheel = tmp_path / build.build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")  # what an installer does with a wheel of Python files alone
        inside = set(archive.namelist())
    package = ROOT / "src" / "episafe"
    data = [path for path in package.rglob("*") if path.suffix in (".html", ".css", ".csv") or path.name == "py.typed"]
    assert {f"episafe/{path.relative_to(package).as_posix()}" for path in data} <= inside
    place = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    script = "import episafe, sys; from episafe.report import pages; print(episafe.__file__, pages.render('style.css'))"
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=place, capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(str(tmp_path / "site"))
