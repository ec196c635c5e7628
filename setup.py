"""The compiled arithmetic. Without a C compiler the build goes on, and torch does that arithmetic instead."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"graphveil.{package}._{name}",
            [f"src/graphveil/{package}/{name}.c"],
            # Nobody looks at errno or at floating-point exceptions; results stay those of IEEE arithmetic.
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,
        )
        for package, name in (("noise", "normals"), ("execution", "sums"))
    ]
)
