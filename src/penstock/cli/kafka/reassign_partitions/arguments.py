"""The arguments of kafka-reassign-partitions.sh."""

from __future__ import annotations

from penstock.cli.kafka.options import Option, Options

PURPOSE = "This tool helps to move topic partitions between replicas."
OPTIONS = {
    "verify": Option(
        "Verify that the reassignment of --reassignment-json-file is complete. If it is, its "
        "throttles are removed."
    ),
    "generate": Option("Generate a candidate reassignment; it is not executed."),
    "execute": Option("Start the reassignment of --reassignment-json-file."),
    "cancel": Option("Cancel an active reassignment."),
    "list": Option("List all active reassignments."),
    "bootstrap-server": Option(
        "Bootstrap brokers.", "String: Server(s) to use for bootstrapping", optional=True
    ),
    "command-config": Option(
        "A properties file for the client.", "String: Admin client property file"
    ),
    "reassignment-json-file": Option(
        'The reassignment: {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2,3], '
        '"log_dirs": ["dir1","dir2","dir3"]}], "version": 1}. log_dirs is optional; "any" leaves '
        "the directory to the broker.",
        "String: manual assignment json file path",
    ),
    "topics-to-move-json-file": Option(
        'The topics to move to --broker-list: {"topics": [{"topic": "foo"}], "version": 1}.',
        "String: topics to reassign json file path",
    ),
    "broker-list": Option('The brokers to move topics to, as "0,1,2".', "String: brokerlist"),
    "bootstrap-controller": Option(
        "Bootstrap controllers, with --list and --cancel.",
        "String: bootstrap controller to connect to",
        optional=True,
    ),
    "disable-rack-aware": Option("Ignore the racks of the brokers."),
    "throttle": Option(
        "Bytes per second at which partitions move between brokers. Change it with --additional.",
        "Long: throttle",
    ),
    "replica-alter-log-dirs-throttle": Option(
        "Bytes per second at which replicas move between log directories of a broker.",
        "Long: replicaAlterLogDirsThrottle",
    ),
    "timeout": Option(
        "Milliseconds to wait for moves between log directories to begin. Default: 10000.",
        "Long: timeout",
    ),
    "additional": Option("Execute this reassignment in addition to ongoing ones."),
    "preserve-throttles": Option("Leave the throttles as they are."),
    "disallow-replication-factor-change": Option(
        "Refuse a reassignment that changes the replication factor."
    ),
}
# Action -> required options, permitted options.
_ACTIONS = {
    "generate": (
        ("topics-to-move-json-file", "broker-list"),
        ("bootstrap-server", "command-config", "disable-rack-aware"),
    ),
    "execute": (
        ("reassignment-json-file",),
        (
            "additional",
            "bootstrap-server",
            "command-config",
            "throttle",
            "replica-alter-log-dirs-throttle",
            "timeout",
            "disallow-replication-factor-change",
        ),
    ),
    "verify": (
        ("reassignment-json-file",),
        ("bootstrap-server", "command-config", "preserve-throttles"),
    ),
    "cancel": (
        ("reassignment-json-file",),
        (
            "bootstrap-server",
            "bootstrap-controller",
            "command-config",
            "preserve-throttles",
            "timeout",
        ),
    ),
    "list": ((), ("bootstrap-server", "bootstrap-controller", "command-config")),
}


def parse_action(options: Options) -> str:
    """Return the action, or print the usage and exit."""
    given = [action for action in _ACTIONS if options.has(action)]
    if len(given) != 1:
        actions = ", ".join(f"--{action}" for action in _ACTIONS)
        options.usage(f"Command must include exactly one action: {actions}")
    (action,) = given
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        options.usage("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not options.has("bootstrap-server", "bootstrap-controller"):
        options.usage("Please specify either --bootstrap-server or --bootstrap-controller")
    required, permitted = _ACTIONS[action]
    options.require(*required)
    for name in OPTIONS:
        if name not in (action, *required, *permitted) and options.has(name):
            options.usage(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action
