"""What a connection to an address says about it, in words, and what to do."""

from __future__ import annotations

from penstock.health.findings import Reason
from penstock.health.observations import Probe, Reach

# What each result of a probe says about an address, and what to do.
REACHED: dict[Reach, tuple[str, str]] = {
    Reach.UNKNOWN_HOST: (
        "the host name {host} does not exist",
        "correct the host name, or add it to DNS or to the hosts file of this machine",
    ),
    Reach.NAME_SERVER: (
        "the name server did not resolve {host}: {detail}",
        "check the name servers of this machine",
    ),
    Reach.REFUSED: (
        "{address} refuses connections",
        "start the broker, or correct the port: no process listens there",
    ),
    Reach.TIMED_OUT: (
        "{address} does not answer",
        "check firewalls and security groups, and that the machine runs",
    ),
    Reach.UNREACHABLE: (
        "{address} is not reachable: {detail}",
        "check the network and the routes of this machine",
    ),
    Reach.SILENT: (
        "{address} accepts connections and answers nothing",
        "check whether the process is paused or overloaded, and that it is a Kafka broker",
    ),
    Reach.CLOSED: (
        "{address} closes connections before it answers",
        "check that this is a plaintext listener of a broker, and the broker's limits of "
        "connections",
    ),
    Reach.HTTP: (
        "{address} speaks HTTP, not Kafka's protocol",
        "use the port of a broker's listener; this is a web server, a REST proxy or a console",
    ),
    Reach.TLS: (
        "{address} speaks TLS",
        "set security.protocol=SSL or SASL_SSL in the client, or use a plaintext listener",
    ),
    Reach.PLAINTEXT: (
        "{address} is a listener without TLS",
        "set security.protocol=PLAINTEXT or SASL_PLAINTEXT in the client, or use the port of a "
        "listener with TLS (listener.security.protocol.map)",
    ),
    Reach.CERTIFICATE_EXPIRED: (
        "the certificate of {address} has expired, or is not valid yet: {detail}",
        "replace the file of ssl.keystore.location on that node; it is read again within seconds. "
        "Check the clocks of both machines",
    ),
    Reach.CERTIFICATE_NAME: (
        "the certificate of {address} is for another host: {detail}",
        "connect by a name that the certificate has, or issue one with this name as a subject "
        "alternative name",
    ),
    Reach.CERTIFICATE: (
        "the certificate of {address} is not trusted: {detail}",
        "set ssl.truststore.location in the client to a file with the certificate of its issuer",
    ),
    Reach.HANDSHAKE: (
        "the TLS handshake with {address} fails: {detail}",
        "compare ssl.enabled.protocols, ssl.cipher.suites and ssl.client.auth of the listener with "
        "the client's settings; the node's log has its side of the reason",
    ),
    Reach.CREDENTIALS: (
        "{address} refuses the login: {detail}",
        "check sasl.mechanism, and username and password in sasl.jaas.config. penstock users list "
        "shows the users of SCRAM",
    ),
    Reach.OTHER_PROTOCOL: (
        "{address} does not speak Kafka's protocol: {detail}",
        "use the port of a broker's listener",
    ),
    Reach.AUTHENTICATION: (
        "{address} closes the connection after ApiVersions",
        "the listener asks for authentication: set security.protocol and sasl.mechanism in the "
        "client",
    ),
    Reach.CONTROLLER: (
        "{address} is the listener of a controller",
        "use the port of a broker's listener (listeners, without those in "
        "controller.listener.names)",
    ),
    Reach.VERSION: (
        "{address} supports no version in common: {detail}",
        "upgrade the older of client and broker",
    ),
}


def probe_reason(probe: Probe, address: str = "") -> Reason | None:
    """Return why clients on this machine cannot use an address, or None if they can. `address`
    stands for the address in the words, if given."""
    if probe.reach is Reach.KAFKA:
        return None
    words, todo = REACHED[probe.reach]
    fields = {"host": probe.host, "address": address or probe.address, "detail": probe.detail}
    return Reason(probe.reach.value, words.format(**fields), todo)
