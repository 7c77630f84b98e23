"""The embedded broker of a run: started, stopped, killed, paused, and started again when it died."""

import re
import signal
import threading
import time

from chaos import processes
from chaos.commands import Done, respool
from chaos.place import Place
from chaos.timeline import Timeline


class BrokerControl:
    """Keeps the broker of a run alive, except while a fault wants it to be down."""

    def __init__(self, place: Place, timeline: Timeline) -> None:
        """Take where the run happens; nothing starts yet."""
        self._place = place
        self._timeline = timeline
        self._wanted = threading.Event()
        self.address = ""

    def start(self, seconds: float = 240) -> None:
        """Start the broker, again and again if that fails; raise TimeoutError when it does not answer in time."""
        deadline = time.monotonic() + seconds
        while True:
            done = respool(self._place, self._timeline, "broker", "start", limit=150)
            if done.ok:
                self._note_address(done)
                self._wanted.set()
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not start: {done.reason}")
            time.sleep(1)

    def stop(self) -> Done:
        """Stop the broker as a user does."""
        self._wanted.clear()
        return respool(self._place, self._timeline, "broker", "stop", limit=90)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the broker; return False when it does not run."""
        if number == signal.SIGKILL:
            self._wanted.clear()
        return any([processes.send(one.pid, number) for one in self._running()])

    def revive(self) -> bool:
        """Start the broker if it died though it is wanted, and return whether it had died."""
        if not self._wanted.is_set() or self._running():
            return False
        self._timeline.add("ended", "broker", "it is started again")
        try:
            self.start()
        except TimeoutError as error:
            self._timeline.violate(str(error))
            raise
        return True

    def _running(self) -> list[processes.Process]:
        return [one for one in processes.find(self._place.marker) if one.role == "broker"]

    def _note_address(self, done: Done) -> None:
        found = re.search(r"127\.0\.0\.1:\d+", done.output)
        address = found[0] if found else ""
        if self.address and address != self.address:
            self._timeline.violate(f"the broker moved from {self.address} to {address}")
        self.address = address
