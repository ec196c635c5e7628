"""The compiled noise arithmetic. Without a C compiler the build goes on, and torch does that arithmetic instead."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "graphveil.mechanisms._normals",
            ["src/graphveil/mechanisms/normals.c"],
            extra_compile_args=["-O3", "-fno-math-errno"],
            optional=True,
        )
    ]
)
