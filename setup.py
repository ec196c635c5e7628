"""What pyproject.toml cannot say: the compiled arithmetic, the pages in the package, links in the long description.

Without a C compiler the build goes on, and torch does that arithmetic instead.
"""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithPages(build_py):
    """Copies the pages of docs/ into the package: certificates cite them, and `graphveil docs` prints them."""

    def run(self):
        super().run()
        if not self.editable_mode:
            place = Path(self.build_lib) / "graphveil" / "docs"
            place.mkdir(parents=True, exist_ok=True)
            for page in self._pages():
                shutil.copyfile(page, place / page.name)

    def get_outputs(self, include_bytecode=1):
        place = Path(self.build_lib) / "graphveil" / "docs"
        return super().get_outputs(include_bytecode) + [str(place / page.name) for page in self._pages()]

    def _pages(self):
        return sorted((ROOT / "docs").glob("*.md"))


def long_description():
    """README.md with absolute links: relative ones lead nowhere on the page of a package."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        source = tomllib.load(file)["project"]["urls"]["Source"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|#)", f"]({source}/blob/main/", text)


setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithPages},
    ext_modules=[
        Extension(
            f"graphveil.{package}._{name}",
            [f"src/graphveil/{package.replace('.', '/')}/{name}.c"],
            # Nobody looks at errno or at floating-point exceptions; results stay those of IEEE arithmetic.
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,
        )
        for package, name in (("noise", "normals"), ("execution", "sums"), ("graph.io", "ids"))
    ],
)
