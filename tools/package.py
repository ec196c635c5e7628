"""Build the source distribution and the wheel, check what is in them, and install both into fresh environments.

    python tools/package.py                                # python3.11, python3.12 and python3.13, where they are there
    python tools/package.py --python python3.12            # another list
    python tools/package.py --no-install                   # build and check alone; needs no network

The wheel is built from the unpacked source distribution, as pip does. Installing fetches the dependencies at the
versions of constraints.txt.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
EXTRAS = {"serve", "docs", "ray", "notebooks", "test"}
# What whoever gets only these files must find in them.
IN_SOURCE = (
    *("CHANGELOG.md", "LICENSE", "README.md", "CITATION.cff", "constraints.txt", "mkdocs.yml", "docs/index.md"),
    *("docs/theory.md", "docs/results/README.md", "src/graphveil/noise/normals.c", "tests/conftest.py"),
)
IN_WHEEL = ("graphveil/py.typed", "graphveil/report/page.css", "graphveil/serve/page.js", "graphveil/docs/theory.md")


class Defect(Exception):
    """Something that must not be published."""


def build(out: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it, by the setuptools of this Python: no network.

    Args:
        out: A folder for the two files.

    Returns:
        The paths of the source distribution and of the wheel.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(ROOT, tree, ignore=_left_out)
        source = out / _backend(tree, "build_sdist", out)
        with tarfile.open(source) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / source.name.removesuffix(".tar.gz")
        return source, out / _backend(unpacked, "build_wheel", out)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What is made by working with the repository, as .gitignore says too."""
    made = shutil.ignore_patterns(".*", "*.egg-info", "*.so", "__pycache__")(folder, names)
    return made | (set(names) & {"build", "dist", "runs", "data"} if Path(folder) == ROOT else set())


def _backend(folder: Path, hook: str, out: Path) -> str:
    """The name of the file that a hook of the build backend has written."""
    code = f"import setuptools.build_meta as backend; print(backend.{hook}({str(out.resolve())!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Defect(f"{hook} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout.splitlines()[-1]


def check(source: Path, wheel: Path) -> Message:
    """Compare both files with what their users need.

    Args:
        source: The source distribution.
        wheel: The wheel.

    Returns:
        The metadata of the wheel.

    Raises:
        Defect: If something is missing or wrong.
    """
    with tarfile.open(source) as archive:
        stem = source.name.removesuffix(".tar.gz")
        _complete(source, IN_SOURCE, {name.removeprefix(f"{stem}/") for name in archive.getnames()})
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
        _complete(wheel, IN_WHEEL, there)
        pages = {f"graphveil/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
        _complete(wheel, tuple(pages), there)
        about = next(name for name in there if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(about).decode())
    check_metadata(metadata)
    return metadata


def _complete(file: Path, wanted: tuple[str, ...], there: set[str]) -> None:
    if missing := sorted(set(wanted) - there):
        raise Defect(f"{file.name} lacks {', '.join(missing)}")


def check_metadata(metadata: Message) -> None:
    """Refuse metadata that lacks what the page of a package shows.

    Args:
        metadata: The metadata of a wheel.

    Raises:
        Defect: If something is missing or wrong.
    """
    for field in ("Summary", "Author", "License-Expression", "Requires-Python", "Keywords"):
        if not metadata[field]:
            raise Defect(f"the metadata has no {field}")
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    for name in ("Homepage", "Documentation", "Source", "Issues", "Changelog"):
        if not urls.get(name, "").startswith("https://"):
            raise Defect(f"the metadata has no address for {name}")
    classifiers = metadata.get_all("Classifier", [])
    for version in PYTHONS:
        if f"Programming Language :: Python :: {version.removeprefix('python')}" not in classifiers:
            raise Defect(f"no classifier speaks of {version}")
    if missing := EXTRAS - set(metadata.get_all("Provides-Extra", [])):
        raise Defect(f"there are no extras {', '.join(sorted(missing))}")
    relative = re.findall(r"\]\((?!https://|#)[^)]*", str(metadata.get_payload()))
    if relative or "](https://" not in str(metadata.get_payload()):
        raise Defect(f"the long description has relative links, or none: {relative[:3]}")


def install(python: str, source: Path, folder: Path) -> None:
    """Install a wheel with its dependencies into a new environment, use it, and then the source distribution.

    Args:
        python: The interpreter; the wheel is built by it, since compiled parts belong to one version of Python.
        source: The source distribution.
        folder: Where the environment is made.
    """
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    # torch first: the pinned build then satisfies every other package's range.
    subprocess.run([*pip, "install", *pinned, "setuptools", "torch"], check=True)
    alone, wheels = ["--no-deps", "--no-build-isolation", str(source)], folder / "wheels"
    subprocess.run([*pip, "wheel", "--wheel-dir", str(wheels), *alone], check=True)
    subprocess.run([*pip, "install", *pinned, *map(str, wheels.glob("*.whl"))], check=True)
    use(folder)
    subprocess.run([*pip, "install", "--force-reinstall", *alone], check=True)
    use(folder)


def runs(python: str) -> bool:
    """Whether there is such an interpreter; a name may also lead to a program that only says that there is none."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def unpack(wheel: Path, site: Path) -> None:
    """Install a wheel without pip: its files, and the command.

    Args:
        wheel: The wheel.
        site: The folder site-packages of an environment.
    """
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    programs = site.parents[2] / "bin"
    command = programs / "graphveil"
    command.write_text(f"#!{programs / 'python'}\nfrom graphveil.cli import main\nmain()\n")
    command.chmod(0o755)


def use(folder: Path) -> None:
    """Run what a new user would run, in a folder that has nothing of this repository.

    Args:
        folder: The environment that graphveil is installed in.

    Raises:
        Defect: If a command fails, or graphveil does not come from this environment.
    """
    python, command = folder / "bin" / "python", folder / "bin" / "graphveil"
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as away:
        for words in (
            [str(python), "-c", "import graphveil; print(graphveil.__file__)"],
            [str(command), "--version"],
            [str(command), "docs", "theory"],
            [str(command), "train", "--method", "mlp", "--steps", "2", "--seed", "0", "--out", "run"],
        ):
            done = subprocess.run(words, cwd=away, env=surroundings, capture_output=True, text=True)
            if done.returncode or (words[1] == "-c" and not done.stdout.startswith(str(folder))):
                raise Defect(f"{' '.join(words)}: {done.stdout[-500:]}{done.stderr[-2000:]}")


def main() -> None:
    """Build, check and install; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", help="interpreter to install into; may be repeated")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the two files (dist)")
    parser.add_argument("--no-install", action="store_true", help="build and check alone")
    options = parser.parse_args()
    try:
        source, wheel = build(options.out)
        metadata = check(source, wheel)
        print(f"{metadata['Name']} {metadata['Version']}: {source} and {wheel} are complete", flush=True)
        for python in [] if options.no_install else options.python or PYTHONS:
            if not runs(python):
                print(f"{python}: skipped, it is not installed here", flush=True)
                continue
            with tempfile.TemporaryDirectory() as scratch:
                install(python, source, Path(scratch) / "env")
            print(f"{python}: wheel and source distribution install and run", flush=True)
    except (Defect, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
