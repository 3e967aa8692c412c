"""Examples for the help of each command, which a test parses."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": (
        "penstock up",
        "penstock up --brokers 3 --dir /tmp/cluster",
        "penstock up --port 0 -c log.retention.hours=1",
    ),
    "start": (
        "penstock start server.properties",
        "penstock start server.properties --override log.retention.hours=1",
    ),
    "nodes list": ("penstock nodes list", "penstock nodes list --dir /tmp/cluster --json"),
    "nodes kill": ("penstock nodes kill 2", "penstock nodes kill 2 3 --dir /tmp/cluster"),
    "nodes pause": ("penstock nodes pause 2",),
    "nodes resume": ("penstock nodes resume 2",),
    "nodes restart": ("penstock nodes restart 1 2 3",),
    "nodes add": ("penstock nodes add --dir /tmp/cluster",),
    "brokers list": ("penstock brokers list", "penstock brokers list --json"),
    "brokers drain": (
        "penstock brokers drain 4 --dry-run",
        "penstock brokers drain 4 5 --throttle 50000000",
    ),
    "brokers undrain": ("penstock brokers undrain 4",),
    "brokers remove": ("penstock brokers remove 4", "penstock brokers remove 4 --yes"),
    "rebalance": (
        "penstock rebalance",
        "penstock rebalance --execute --throttle 50000000",
        "penstock rebalance --cancel",
    ),
    "quorum describe": ("penstock quorum describe", "penstock quorum describe --replication"),
    "quorum add": ("penstock quorum add -c controller.properties --dry-run",),
    "quorum remove": ("penstock quorum remove 3 --dry-run", "penstock quorum remove 3 --yes"),
    "acls list": (
        "penstock acls list",
        "penstock acls list --topic orders --matching --json",
        "penstock acls list --principal User:alice",
    ),
    "acls create": (
        "penstock acls create User:alice --operation read --topic orders --group billing",
        "penstock acls create User:bob --operation write --topic team- --prefixed",
        "penstock acls create User:eve --deny --operation all --cluster",
    ),
    "users list": ("penstock users list", "penstock users list --dir penstock-data --json"),
    "users set": (
        "penstock users set alice",
        "penstock users set alice --password-file alice.txt",
        "penstock users set alice --password-env ALICE_PASSWORD --mechanism SCRAM-SHA-256",
    ),
    "users remove": ("penstock users remove alice", "penstock users remove alice --yes"),
    "acls delete": (
        "penstock acls delete --principal User:alice --topic orders",
        "penstock acls delete --principal User:alice --yes",
    ),
    "quotas list": ("penstock quotas list", "penstock quotas list --user alice --json"),
    "quotas set": (
        "penstock quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152",
        "penstock quotas set --default-user --client-id etl request_percentage=50",
        "penstock quotas set --default-ip connection_creation_rate=10",
    ),
    "quotas remove": (
        "penstock quotas remove --user alice producer_byte_rate",
        "penstock quotas remove --default-ip --yes",
    ),
    "elect-leaders": (
        "penstock elect-leaders",
        "penstock elect-leaders --topic orders --partition 0",
        "penstock elect-leaders --topic orders --unclean",
    ),
    "topics create": (
        "penstock topics create orders --partitions 12 --replication-factor 3",
        "penstock topics create users -c cleanup.policy=compact",
    ),
    "topics list": ("penstock topics list", "penstock topics list --json"),
    "topics describe": (
        "penstock topics describe orders",
        "penstock topics describe --under-replicated --json",
    ),
    "topics alter": (
        "penstock topics alter orders --partitions 24",
        "penstock topics alter orders -c retention.ms=3600000 --delete-config retention.bytes",
    ),
    "topics delete": ("penstock topics delete orders", "penstock topics delete orders --yes"),
    "groups list": ("penstock groups list", "penstock groups list --json"),
    "groups describe": (
        "penstock groups describe billing",
        "penstock groups describe billing --over 0 --json",
    ),
    "groups reset-offsets": (
        "penstock groups reset-offsets billing --topic orders --to-earliest --dry-run",
        "penstock groups reset-offsets billing --topic orders:0,1 --to-time 2h --yes",
    ),
    "groups delete": ("penstock groups delete billing",),
    "transactions list": (
        "penstock transactions list",
        "penstock transactions list --state Ongoing --longer-than 60",
    ),
    "transactions describe": ("penstock transactions describe payments-1",),
    "transactions abort": (
        "penstock transactions abort payments-1",
        "penstock transactions abort --topic orders --partition 0 --start-offset 42 --yes",
    ),
    "transactions end": ("penstock transactions end daily-totals",),
    "transactions find-hanging": (
        "penstock transactions find-hanging --topic orders --older-than 15",
    ),
    "top": (
        "penstock top",
        "penstock top --sort unhealthy --filter '^payments'",
        "penstock top --once --json",
    ),
    "produce": (
        "penstock produce orders < lines.txt",
        "penstock produce orders --key-separator = -H source=shop < lines.txt",
    ),
    "consume": (
        "penstock consume orders --from-beginning --exit-at-end",
        "penstock consume orders --since 5m --json",
        "penstock consume orders --group billing --max-messages 100",
    ),
    "pipeline init": ("penstock pipeline init totals",),
    "pipeline validate": ("penstock pipeline validate totals",),
    "pipeline run": (
        "penstock pipeline run totals",
        "penstock pipeline run totals --once --master 'local[2]'",
    ),
    "pipeline status": (
        "penstock pipeline status totals",
        "penstock pipeline status totals --json",
    ),
    "sql": (
        "penstock sql \"select count(*) from topic('orders')\"",
        "penstock sql --json \"select * from topic('orders') limit 10\"",
    ),
    "format": (
        "penstock format -c server.properties --standalone",
        "penstock format -c server.properties -t p2QlZiJSTTivz5ybSF1ldg --ignore-formatted",
    ),
    "log dump": ("penstock log dump 00000000000000000000.log --records",),
    "profile add": (
        "penstock profile add production --bootstrap-server broker1:9092,broker2:9092",
        "penstock profile add staging --config client.properties",
    ),
    "profile use": ("penstock profile use production", "penstock profile use"),
    "profile list": ("penstock profile list", "penstock profile list --json"),
    "profile remove": ("penstock profile remove staging",),
}

EXIT_CODES = """\b
Exit codes:
  0    done
  1    failed; standard error says why
  2    wrong usage, or --yes is missing
  130  interrupted"""


def epilog(command: str) -> str | None:
    """Return the examples of a command for the end of its help."""
    lines = EXAMPLES.get(command)
    if lines is None:
        return None
    # click keeps the lines of a paragraph that begins with a backspace.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
