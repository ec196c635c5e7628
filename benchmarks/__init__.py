"""Side by side with what a user would pick instead; `python -m benchmarks --help`."""

import os

# Before torch is loaded: OpenMP threads that sleep while they wait. Spinning ones (the default) make every small
# parallel operation, on either side, many times slower as soon as another process wants a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
