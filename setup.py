"""The compiled arithmetic. Without a C compiler the build goes on, and torch does that arithmetic instead."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"graphveil.mechanisms._{name}",
            [f"src/graphveil/mechanisms/{name}.c"],
            extra_compile_args=["-O3", "-fno-math-errno"],
            optional=True,
        )
        for name in ("normals", "sums")
    ]
)
