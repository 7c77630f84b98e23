"""The embedded broker of a run: started, stopped, killed, paused, and restarted after it died."""

import re
import signal
import threading
import time

from chaos import processes
from chaos.commands import Done, respool
from chaos.place import Place
from chaos.timeline import Timeline


class BrokerControl:
    """Keeps the broker of a run alive, except while a fault requires it to be down."""

    def __init__(self, place: Place, timeline: Timeline) -> None:
        """Store the arguments; nothing starts yet."""
        self._place = place
        self._timeline = timeline
        self._wanted = threading.Event()
        self.address = ""

    def start(self, seconds: float = 240) -> None:
        """Start the broker, with retries; raise TimeoutError if it does not respond in time."""
        deadline = time.monotonic() + seconds
        while True:
            done = respool(self._place, self._timeline, "broker", "start", limit=150)
            if done.ok:
                self._note_address(done)
                self._wanted.set()
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not start: {done.reason}")
            time.sleep(1)

    def stop(self) -> Done:
        """Stop the broker as a user does."""
        self._wanted.clear()
        return respool(self._place, self._timeline, "broker", "stop", limit=90)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the broker; return False if it is not running."""
        if number == signal.SIGKILL:
            self._wanted.clear()
        return any([processes.send(process.pid, number) for process in self._running()])

    def revive(self) -> bool:
        """Restart the broker if it died while it should be running, and return whether it had died."""
        if not self._wanted.is_set() or self._running():
            return False
        self._timeline.add("ended", "broker", "restarting")
        try:
            self.start()
        except TimeoutError as error:
            self._timeline.violate(str(error))
            raise
        return True

    def _running(self) -> list[processes.Process]:
        return [process for process in processes.find(self._place.marker) if process.role == "broker"]

    def _note_address(self, done: Done) -> None:
        match = re.search(r"127\.0\.0\.1:\d+", done.output)
        address = match[0] if match else ""
        if self.address and address != self.address:
            self._timeline.violate(f"the broker moved from {self.address} to {address}")
        self.address = address
