"""Which GPU did a process mean by its device ordinal? Pure functions over a survey of who used which ordinal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Basis(Enum):
    """What the identity of a GPU rests on."""

    MAP = "the report's device map"
    ASSUMED = "device ordinals taken as physical"
    PER_PROCESS = "one GPU a process"
    LONE = "the ordinal of the only process"


@dataclass(frozen=True, order=True)
class Slot:
    """A device ordinal as one process saw it. ``process`` is a globalPid, or None where the report names none."""

    process: int | None
    device: int


@dataclass(frozen=True)
class Gpu:
    """A physical GPU.

    Attributes
    ----------
    key
        ``"report:physical index"``, such as ``"0:1"``; ``"report:pidP/ordinal"`` where only that is known.
    physical
        Index of the GPU in the report, or None.
    slots
        The processes that used it, and their ordinals.
    """

    key: str
    physical: int | None
    slots: tuple[Slot, ...]

    @property
    def device(self) -> int | None:
        """The ordinal on which its processes agree, else None."""
        ordinals = {slot.device for slot in self.slots}
        return ordinals.pop() if len(ordinals) == 1 else None


def identify(
    slots: Sequence[Slot], device_map: Mapping[Slot, int], pids: Mapping[int | None, str], report: int
) -> tuple[list[Gpu], Basis]:
    """Give every slot its GPU.

    Parameters
    ----------
    slots
        The ordinals that processes used.
    device_map
        Slot → physical index, as far as the report says (``TARGET_INFO_CUDA_DEVICE``).
    pids
        Process → how its operating system id is written.
    report
        Index of the report, the first part of every key.

    Returns
    -------
    list of Gpu
        Ordered by physical index, then key; together they hold each slot once.
    Basis
        The weakest thing that any of them rests on.

    Notes
    -----
    In this order: the map; else, if processes use different ordinals, or one uses two, or all share one above 0
    (who sees a second device and picks it does not see one alone), ordinals are physical; else several processes
    on ordinal 0 are a GPU each, which is what ``CUDA_VISIBLE_DEVICES`` per rank looks like (and so does sharing
    one GPU); else the only process's ordinal.
    """
    physical: dict[int, list[Slot]] = {}
    unmapped: list[Slot] = []
    for slot in sorted(set(slots), key=lambda s: (s.process is not None, s.process or 0, s.device)):
        if slot in device_map:
            physical.setdefault(device_map[slot], []).append(slot)
        else:
            unmapped.append(slot)
    basis, own = Basis.MAP, []
    if unmapped:
        # Ordinals are compared over all slots: a mapped process tells as much about its neighbours.
        ordinals = {slot.device for slot in slots}
        processes = {slot.process for slot in slots}
        if ordinals != {0} or len(processes) == 1:
            lone = len(processes) == 1 and len(ordinals) == 1
            basis = Basis.LONE if lone else Basis.ASSUMED
            for slot in unmapped:
                physical.setdefault(slot.device, []).append(slot)
        else:
            basis, own = Basis.PER_PROCESS, unmapped
    gpus = [Gpu(f"{report}:{index}", index, tuple(group)) for index, group in sorted(physical.items())]
    gpus += sorted((Gpu(f"{report}:pid{pids[s.process]}/{s.device}", None, (s,)) for s in own), key=lambda gpu: gpu.key)
    return gpus, basis
