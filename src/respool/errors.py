"""What can go wrong, told so that the reader knows what to do next.

RespoolError
├── SettingsError      respool.toml, a RESPOOL_* variable or a flag cannot be read
├── MachineError       something the machine lacks: Java, a jar, disk space
├── BrokerError        Kafka cannot be started, reached or stopped
│   └── BrokerUnreachable   no broker of the cluster answered; waiting may help
├── TopicError         a topic is missing, vanished or cannot be created
├── PipelineError      a pipeline is unknown or badly defined
├── CheckpointError    a checkpoint belongs to another pipeline, is in use or cannot be read
├── QueryError         a streaming query failed while it ran
├── ReprocessError     a span cannot be computed again, or not now
└── DiffError          two outputs cannot be compared

Every message says what was found, what was expected and the next step. The command line prints it without a stack
trace and exits with 1; wrong usage exits with 2.
"""


class RespoolError(Exception):
    """The root of everything that respool raises on purpose."""


class SettingsError(RespoolError):
    """respool.toml, a RESPOOL_* variable or a flag cannot be read."""


class MachineError(RespoolError):
    """The machine lacks something: Java, a jar, disk space."""


class BrokerError(RespoolError):
    """Kafka cannot be started, reached or stopped."""


class BrokerUnreachable(BrokerError):
    """No broker of the cluster answered: waiting may help."""


class TopicError(RespoolError):
    """A topic is missing, vanished or cannot be created."""


class PipelineError(RespoolError):
    """A pipeline is unknown or badly defined."""


class CheckpointError(RespoolError):
    """A checkpoint belongs to another pipeline, is in use or cannot be read."""


class QueryError(RespoolError):
    """A streaming query failed while it ran."""


class ReprocessError(RespoolError):
    """A span cannot be computed again, or not now."""


class DiffError(RespoolError):
    """Two outputs cannot be compared."""


def did_you_mean(word: str, choices: "list[str]") -> str:
    """Return ' Did you mean …?' for the choice nearest to `word`, or an empty string."""
    import difflib

    near = difflib.get_close_matches(word, choices, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
