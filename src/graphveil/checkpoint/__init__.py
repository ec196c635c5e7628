"""A fit that is not finished, as a folder: a killed fit goes on from it and spends nothing twice.

    DIR/
      checkpoint.json               what was asked for, what the ledger has counted, the stages so far with checksums
      artifact.json                 once saving has begun: the one artifact that the fit becomes
      stage-NNN-STEPS.safetensors   a released value, or a training as it was after so many steps

Everything in it is for the owner alone, and neither seed nor key is in it. docs/checkpoint.md says how to use it,
docs/theory.md, section 9.3, why redoing what a kill has destroyed costs nothing.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import torch

from graphveil import validate
from graphveil.artifact.saving import params_of
from graphveil.checkpoint.folder import CheckpointFolder, Destination, Stage, State, stage_bytes
from graphveil.errors import InvalidInput
from graphveil.execution import Carried, LedgerLike, Stages, shown_steps
from graphveil.graph import Fingerprint, GraphView
from graphveil.methods.estimator import NodeClassifier
from graphveil.noise import NoiseSource
from graphveil.privacy.certificate import library_versions
from graphveil.privacy.levels import Public, level_to_dict
from graphveil.privacy.mechanisms import ClippedTraining, Mechanism
from graphveil.privacy.plan import Plan, plan_from_dict, plan_to_dict
from graphveil.process import code_digest
from graphveil.validate import decoding

__all__ = ["AlreadySaved", "Checkpoint"]


# Torch's generator, as it was when a stage was kept: initial weights and the keys of dropout come from it.
_GENERATOR = "torch generator"


class AlreadySaved(InvalidInput):
    """The fit of this checkpoint is finished, and its artifact is complete."""

    def __init__(self, checkpoint: Path, artifact: str, why: str) -> None:
        super().__init__("checkpoint", str(checkpoint), why)
        self.artifact = Path(artifact)


class Checkpoint(Stages):
    """A folder that keeps one unfinished fit. Use it as a context manager.

    The folder belongs to this process from the beginning of the `with` block to its end. `fit` leaves a finished fit in
    it, so that nothing is lost if the process is killed before the model is saved; `discard` then removes it.

    Args:
        folder: The folder.
        every: How long a training runs between two versions: a whole number of steps, or seconds as a float.
        resume: Continue the fit that is in the folder. Otherwise there must be none.

    Raises:
        InvalidInput: On entering: the folder cannot be used, or holds an unfinished fit that is not to be resumed.
        AlreadySaved: On entering: the fit is finished and its artifact is complete.

    Formal guarantee (docs/theory.md, section 9.3): the ledger's counts are written together with what was drawn,
    atomically. A released value is written before anything uses it, and is never drawn again. Of draws that were lost
    when a process was killed nothing is left in any file, so drawing them again is the first draw that anyone can see.
    A finished fit becomes one artifact: the folder names it before it is written, and does not go on with a fit whose
    artifact is there.
    """

    def __init__(self, folder: str | Path, *, every: float = 60.0, resume: bool = False) -> None:
        self.folder, self._resume = Path(folder), resume
        self._every = validate.count("checkpoint_every", every) if isinstance(every, int) else every
        validate.positive("checkpoint_every", every)
        self._ctrl_c, self._taken, self._discarded, self._closed = CtrlC(), False, False, False

    def __enter__(self) -> Self:
        if self._resume and not self.folder.is_dir():
            raise InvalidInput("checkpoint", str(self.folder), "there is no such folder to resume from")
        self._files = self._open_folder()
        try:
            self._resumed = self._open()
        except BaseException:
            self._files.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._files.close()

    def _open_folder(self) -> CheckpointFolder:
        return CheckpointFolder(self.folder)

    def _together(self, flag: bool) -> bool:
        """Whether this holds for this process or, where several processes keep one fit, for one of them."""
        return flag

    def _fingerprint(self, graph: GraphView, salt: str | None) -> Fingerprint:
        return Fingerprint.of(graph, salt)

    def _open(self) -> State | None:
        state = self._files.read()
        saved = None if state is None else self._files.saved()
        if saved is not None:
            if not self._resume:
                why = f"holds a fit that is finished and saved in {saved}; delete the folder"
                raise InvalidInput("checkpoint", str(self.folder), why)
            self.discard()
            why = f"its fit is finished and saved in {saved}; the checkpoint is removed"
            raise AlreadySaved(self.folder, saved, why)
        if state is None:
            if self._resume:
                raise InvalidInput("checkpoint", str(self.folder), "holds no checkpoint to resume from")
            self._files.check_empty()
        elif not self._resume:
            with decoding(self.folder, "a checkpoint"):
                cost = spent(state.fit, state.ledger)
            raise InvalidInput(
                "checkpoint",
                str(self.folder),
                f"holds an unfinished fit that has spent {cost}; resume it, or delete the folder to discard it: "
                "what it has spent adds to what a new fit spends",
            )
        # Before anything is drawn: values of a killed step must not stay beside those that are drawn in their place.
        self._files.remove_the_rest(set() if state is None else state.files)
        return state

    def discard(self) -> None:
        """Remove the checkpoint: its fit is finished, and its model is where it belongs."""
        self._files.discard()
        self._discarded = True

    def goes_to(self, artifact: Path, rows: str) -> None:
        """Write down that the finished fit is saved as this artifact, before the artifact is written.

        Args:
            artifact: Its folder.
            rows: The checksum of its file of rows.

        Raises:
            AlreadySaved: The fit is saved in another folder.
            InvalidInput: This checkpoint is closed.
        """
        if self._discarded:
            return
        if self._closed:
            why = "keeps this fit and is closed: save the model before, or go on with resume=True and save it then"
            raise InvalidInput("checkpoint", str(self.folder), why)
        saved = self._files.saved_here()
        if saved is not None:
            why = f"its fit is saved in {saved} already; a second artifact would draw noise for new nodes a second time"
            raise AlreadySaved(self.folder, saved, why)
        self._files.write_destination(Destination(os.path.realpath(artifact), rows))

    @contextmanager
    def following(
        self, model: NodeClassifier, graph: GraphView, ledger: LedgerLike, source: NoiseSource
    ) -> Iterator[None]:
        """Keep the stages of a fit, or go on with the fit that was kept."""
        if self._taken:
            raise InvalidInput("checkpoint", str(self.folder), "keeps one fit; open it again for another")
        self._taken = True
        self._ledger, self._source, self._next = ledger, source, 0
        if self._resumed is None:
            self._state = State(identity(model, ledger.plan, self._fingerprint(graph, None)), {}, None, ())
            self._reach("start")
            self._keep("start", 1, 1, {})
        else:
            self._state = self._resumed
            with decoding(self.folder, "a checkpoint"):
                salt = self._state.fit["graph"]["salt"]
                check_same(self._state.fit, identity(model, ledger.plan, self._fingerprint(graph, salt)))
                ledger.resume(self._state.ledger)
                if not source.secure:
                    source.seek(self._state.position)
            self._reach("start")
        ledger.stages = self
        try:
            with self._ctrl_c.deferred():
                yield
                self._ctrl_c.obey()
        finally:
            ledger.stages = Stages()

    def draw(self, name: str, draw: Callable[[], torch.Tensor], fits: Callable[[torch.Tensor], bool]) -> torch.Tensor:
        kept = self._reach(name)
        if kept is not None:
            if kept[0].of != 1 or set(kept[1]) != {"value"} or not fits(kept[1]["value"]):
                raise self._foreign(f"{name} cannot have given what it holds")
            return kept[1]["value"]
        value = draw()
        self._keep(name, 1, 1, {"value": value})
        self._ctrl_c.obey()
        return value

    def steps(
        self, count: int, name: str, carried: Carried, show: bool | None, enough: Callable[[], bool] = lambda: False
    ) -> Iterable[int]:
        kept = self._reach(name)
        first = 0
        if kept is not None:
            first = kept[0].steps
            with decoding(self.folder, f"the training of {name}"):
                carried.restore(kept[1])
            ended = first == kept[0].of <= count and enough()
            if kept[0].of != count and not ended:
                raise self._foreign(f"{name} has {kept[0].of} steps in it instead of {count}")
            if ended:
                return
        last, since = time.monotonic(), first
        for step in shown_steps(count, name, show, first):
            yield step
            done = step + 1
            long = done - since if isinstance(self._every, int) else time.monotonic() - last
            ended = done == count or enough()
            if self._together(ended or long >= self._every or self._ctrl_c.pressed):
                self._keep(name, done, done if ended else count, carried.tensors())
                last, since = time.monotonic(), done
            self._ctrl_c.obey()
            if ended:
                return

    def _reach(self, name: str) -> tuple[Stage, dict[str, torch.Tensor]] | None:
        """The next stage as it was kept, with torch's generator as it was then; None if it was not reached before."""
        number, self._next = self._next, self._next + 1
        if number >= len(self._state.stages):
            return None
        stage = self._state.stages[number]
        if stage.name != name:
            raise self._foreign(f"{stage.name} is in the place of {name}")
        tensors = self._files.tensors(self._state, number)
        with decoding(self.folder / self._state.file(number), "a stage"):
            generator = self._source.unseal(bytes(tensors.pop(_GENERATOR).numpy()))
            torch.set_rng_state(torch.frombuffer(bytearray(generator), dtype=torch.uint8))
        return stage, tensors

    def _keep(self, name: str, steps: int, of: int, tensors: dict[str, torch.Tensor]) -> None:
        """Replace what is kept by this: the stage that was reached last, after so many steps."""
        generator = bytearray(self._source.seal(bytes(torch.get_rng_state().numpy())))
        data = stage_bytes({**tensors, _GENERATOR: torch.frombuffer(generator, dtype=torch.uint8)})
        number = self._next - 1
        stages = (*self._state.stages[:number], Stage.holding(data, name, steps, of))
        position = None if self._source.secure else self._source.position
        self._state = replace(self._state, ledger=self._ledger.used, position=position, stages=stages)
        self._files.write(self._state, number, data)

    def _foreign(self, why: str) -> InvalidInput:
        return InvalidInput("checkpoint", str(self.folder), f"does not belong to this fit: {why}")


class CtrlC:
    """Ctrl-C that waits for the end of a step: the first is noted until `obey` is called, the second acts at once."""

    def __init__(self) -> None:
        self.pressed = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within this block the first Ctrl-C is only noted."""
        before = signal.getsignal(signal.SIGINT)
        # Only the main thread can set a handler, and a process that ignores Ctrl-C goes on ignoring it.
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def note(number: int, frame: FrameType | None) -> Any:
            self.pressed = True
            signal.signal(number, before)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def obey(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was noted."""
        if self.pressed:
            self.pressed = False
            raise KeyboardInterrupt


_WHY_ANOTHER = {
    "graph": "is not the graph that this checkpoint was made on",
    "code": "is another version of graphveil than the one that made this checkpoint",
    "libraries": "are other versions than those that made this checkpoint",
    "plan": "is another plan than this checkpoint's",
}


def identity(model: NodeClassifier, plan: Plan, fingerprint: Fingerprint) -> dict[str, Any]:
    """Everything that a resumed fit must have in common with the one that was killed, as JSON.

    The seed is not in it. The fingerprint is that of the graph, and for the owner.
    """
    fit = {
        **{f"option {name}": value for name, value in params_of(model).items()},
        "option level": level_to_dict(model.level),
        "method": model.method,
        "seeded": model.seed is not None,
        "plan": plan_to_dict(plan),
        "graph": fingerprint.to_dict(),
        "code": code_digest(),
        "libraries": library_versions(),
    }
    same: dict[str, Any] = json.loads(json.dumps(fit, default=str))
    return same


def check_same(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on with another fit than the one that was begun."""
    for name in ["method", *sorted({*kept, *given} - {"method", *_WHY_ANOTHER}), *_WHY_ANOTHER]:
        if kept.get(name) == given.get(name):
            continue
        if name == "seeded":
            why = "was made with a seed: give the same one" if kept.get(name) else "was made without a seed: give none"
            raise InvalidInput("seed", "none" if kept.get(name) else "given", f"this checkpoint {why}")
        if name in _WHY_ANOTHER:
            raise InvalidInput(name, "given", _WHY_ANOTHER[name])
        raise InvalidInput(name.removeprefix("option "), given.get(name), f"this checkpoint has {kept.get(name)!r}")


def spent(fit: Mapping[str, Any], ledger: Mapping[str, int]) -> str:
    """What the draws of an unfinished fit cost."""
    plan = plan_from_dict(fit["plan"])
    if isinstance(plan.level, Public):
        return "nothing, as nothing is protected"
    epsilon = plan.changed(lambda m: _drawn(m, ledger[m.name]) if ledger.get(m.name) else None).epsilon
    counts = ", ".join(f"{name} {drawn} of {plan[name].uses}" for name, drawn in ledger.items())
    return f"epsilon {epsilon:.4g} of {plan.epsilon:.4g} at delta {plan.delta:.3g} (draws: {counts or 'none planned'})"


def _drawn(mechanism: Mechanism, times: int) -> Mechanism:
    if isinstance(mechanism, ClippedTraining):
        return replace(mechanism, steps=times)
    return replace(mechanism, uses=times)
