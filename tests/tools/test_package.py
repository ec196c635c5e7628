"""The files that are published: complete, with metadata that leads somewhere, and of use where there is nothing else.

`make package` installs them with their dependencies on several versions of Python, which needs a network.
"""

import sys
import sysconfig
import tarfile
import venv
from email import message_from_string
from pathlib import Path

import pytest

import graphveil as gv

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

import package  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return package.build(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_the_files_are_complete(built):
    metadata = package.check(*built)
    assert metadata["Version"] == gv.__version__
    with tarfile.open(built[0]) as archive:
        names = archive.getnames()
    assert not [name for name in names if name.endswith((".so", ".pyc")) or "/.git/" in name]


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(built, tmp_path):
    """Dependencies are those of this environment, by a path file: nothing is fetched."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    package.unpack(built[1], site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    package.use(folder)


def test_interpreters_that_are_missing_are_skipped():
    assert package.runs(sys.executable)
    assert not package.runs("python9.99")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Author: ", "Nobody: "), "no Author"),
        (("Project-URL: Changelog", "Project-URL: Elsewhere"), "no address for Changelog"),
        (("Python :: 3.13", "Python :: 4"), r"python3\.13"),
        (("Provides-Extra: ray", "Provides-Extra: rain"), "no extras ray"),
        (("(https://x/docs)", "(docs/x.md)"), "relative links"),
    ],
)
def test_the_checks_see_what_they_look_for(change, message):
    fields = ["Author: a", "Summary: s", "License-Expression: l", "Requires-Python: p", "Keywords: k"]
    fields += [f"Project-URL: {name}, https://x" for name in ("Homepage", "Documentation", "Source", "Issues")]
    fields += ["Project-URL: Changelog, https://x"]
    fields += [f"Classifier: Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)]
    fields += [f"Provides-Extra: {extra}" for extra in sorted(package.EXTRAS)]
    sound = "\n".join([*fields, "", "See [docs](https://x/docs)."])
    package.check_metadata(message_from_string(sound))
    with pytest.raises(package.Defect, match=message):
        package.check_metadata(message_from_string(sound.replace(*change)))
