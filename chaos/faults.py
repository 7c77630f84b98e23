"""Faults of processes, of the broker and of the disk."""

import signal
import time

from chaos import processes
from chaos.operations import operate
from chaos.schedule import BROKER, DISK, OPERATIONS, Fault
from chaos.world import Outcome, World


def inject(world: World, fault: Fault) -> None:
    """Inject a fault, and add it to the timeline."""
    timeline = world.timeline
    begin = timeline.now()
    if fault.kind in OPERATIONS:
        outcome, text = operate(world, fault)
    elif fault.kind in BROKER:
        outcome, text = _broker(world, fault)
    elif fault.kind in DISK:
        outcome, text = _disk(world, fault)
    else:
        outcome, text = _process(world, fault)
    timeline.add(
        fault.kind,
        fault.pipeline or fault.group or ("broker" if fault.kind in BROKER else "disk"),
        text,
        at=round(begin, 2),
        outcome=outcome,
        took=round(timeline.now() - begin, 2),
        number=fault.number,
    )


def _process(world: World, fault: Fault) -> Outcome:
    group = world.groups[fault.group]
    pid = group.pid
    if pid is None:
        return "skipped", "the process is not running"
    if fault.kind == "kill-python":
        group.expect_end()
        return _sent(group.signal(signal.SIGKILL), f"process {pid}")
    if fault.kind in ("term-python", "term-group"):
        with group.held():
            group.expect_end()
            group.signal(signal.SIGTERM, whole_group=fault.kind == "term-group")
            code = group.wait_for_end("SIGTERM")
        return "done", f"process {pid} ended with exit code {code}"
    if fault.kind == "pause-python":
        return _pause(world, [pid], fault.seconds)
    role = "worker" if fault.kind == "kill-worker" else "jvm"
    members = sorted((member for member in group.members() if member.role == role), key=lambda member: member.pid)
    if not members:
        return "skipped", f"run {group.name} has no {role}"
    if fault.kind == "pause-jvm":
        return _pause(world, [members[0].pid], fault.seconds)
    target = members[int(fault.chances[0] * len(members))]
    group.expect_end()
    return _sent(processes.send(target.pid, signal.SIGKILL), f"{role} {target.pid}")


def _sent(sent: bool, text: str) -> Outcome:
    return ("done", text) if sent else ("skipped", f"{text} had already ended")


def _pause(world: World, pids: list[int], seconds: float) -> Outcome:
    with world.outage_noted():
        stopped = [pid for pid in pids if processes.send(pid, signal.SIGSTOP)]
        time.sleep(seconds)
        for pid in stopped:
            processes.send(pid, signal.SIGCONT)
    return _sent(bool(stopped), f"process {pids[0]} paused for {seconds:.0f} s")


def _broker(world: World, fault: Fault) -> Outcome:
    broker = world.broker
    with world.outage_noted():
        if fault.kind == "pause-broker":
            sent = broker.signal(signal.SIGSTOP)
            time.sleep(fault.seconds)
            broker.signal(signal.SIGCONT)
            return _sent(sent, f"paused for {fault.seconds:.0f} s")
        if fault.kind == "stop-broker":
            done = broker.stop()
            if not done.ok:
                return "failed", done.reason
        else:
            broker.signal(signal.SIGKILL)
        time.sleep(fault.seconds)
        broker.start()
    return "done", f"down for {fault.seconds:.0f} s"


def _disk(world: World, fault: Fault) -> Outcome:
    if world.place.no_small_disk:
        return "skipped", world.place.no_small_disk
    with world.outage_noted():
        try:
            taken = world.place.fill()
            time.sleep(fault.seconds)
        finally:
            world.place.free()
    return "done", f"full for {fault.seconds:.0f} s, by {taken / 2**20:,.0f} MiB"
