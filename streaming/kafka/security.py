"""Settings of a secured connection by the names of both Kafka clients, and the reasons of refused handshakes.

librdkafka gets secrets as values and files as paths. The Java client gets everything as values: its JAAS line is
written here, with the user's text quoted, and its PEM texts are read here. Both verify the broker's certificate and
host name, whatever their defaults are.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from cryptography.hazmat.primitives import serialization

from schemas.errors import BackfillError
from schemas.settings.security import OAuth, Security

HANDSHAKE_TIMEOUT_S = 5.0
JAVA_SECRETS = "(?i)secret|password|token|access[.]?key|sasl[.]jaas|ssl[.]keystore|ssl[.]truststore"
"""For Spark's redaction: names and values that it must not print."""

_LOGIN_MODULES = {
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LOGIN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def for_librdkafka(security: Security) -> dict[str, str | bool]:
    """Settings of a librdkafka client, secrets included: hand it to the client and forget it.

    Raises: ConfigError when a secret can't be read.
    """
    settings: dict[str, str | bool] = {"security.protocol": security.protocol}
    if security.oauth is not None:
        settings |= _native_oidc(security.oauth)
    elif security.sasl:
        assert security.mechanism is not None
        assert security.password is not None
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username or "",
            "sasl.password": security.password.read(),
        }
    if security.encrypted:
        settings |= {
            "enable.ssl.certificate.verification": True,
            "ssl.endpoint.identification.algorithm": "https",
        }
        if security.ca_file is not None:
            settings["ssl.ca.location"] = str(security.ca_file)
        if security.certificate_file is not None:
            settings["ssl.certificate.location"] = str(security.certificate_file)
            settings["ssl.key.location"] = str(security.key_file)
        if security.key_password is not None:
            settings["ssl.key.password"] = security.key_password.read()
    return settings


def for_java(security: Security) -> dict[str, str]:
    """Settings of a Java client, secrets included. Raises: ConfigError when a secret can't be read."""
    settings = {"security.protocol": security.protocol.upper()}
    if security.oauth is not None:
        settings |= _java_oidc(security.oauth)
    elif security.sasl:
        assert security.mechanism is not None
        assert security.password is not None
        settings["sasl.mechanism"] = security.mechanism
        login = f"username={jaas_quoted(security.username or '')} password={jaas_quoted(security.password.read())}"
        settings["sasl.jaas.config"] = f"{_LOGIN_MODULES[security.mechanism]} required {login};"
    if security.encrypted:
        settings["ssl.endpoint.identification.algorithm"] = "https"
        if security.ca_file is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(security.ca_file)}
        if security.certificate_file is not None:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": security.certificate_file.read_text(encoding="utf-8"),
                "ssl.keystore.key": _opened(security),
            }
    return settings


def _native_oidc(oauth: OAuth) -> dict[str, str | bool]:
    """The client requests tokens itself, on a thread of its own, and renews them before they end."""
    settings: dict[str, str | bool] = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": oauth.token_url,
        "sasl.oauthbearer.client.id": oauth.client_id,
        "sasl.oauthbearer.client.secret": oauth.client_secret.read(),
    }
    if oauth.scope is not None:
        settings["sasl.oauthbearer.scope"] = oauth.scope
    if oauth.ca_file is not None:
        settings["https.ca.location"] = str(oauth.ca_file)
    return settings


def _java_oidc(oauth: OAuth) -> dict[str, str]:
    """Settings of the Java client, with the trust store of its HTTPS in the JAAS line (Kafka's JaasOptionsUtils)."""
    options = {"clientId": oauth.client_id, "clientSecret": oauth.client_secret.read()}
    if oauth.scope is not None:
        options["scope"] = oauth.scope
    if oauth.ca_file is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(oauth.ca_file)}
    said = " ".join(f"{key}={jaas_quoted(value)}" for key, value in options.items())
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{_LOGIN_MODULES['OAUTHBEARER']} required {said};",
        "sasl.login.callback.handler.class": _LOGIN_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": oauth.token_url,
    }


def _opened(security: Security) -> str:
    """The client's key without its password. Java 17 can't decrypt what OpenSSL writes (PBES2, JDK-8076999)."""
    pem = security.private_key()
    if security.key_password is None:
        return pem
    key = serialization.load_pem_private_key(pem.encode(), security.key_password.read().encode())
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain.decode()


def jaas_quoted(text: str) -> str:
    r"""The text as a JAAS string: only `"` and `\` mean something between the quotes; it has no line ends."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def why_no_handshake(bootstrap: str, security: Security) -> str | None:
    """OpenSSL's reason why a TLS handshake with the first broker of the list fails; None when it is unknown.

    librdkafka gives no reason. This tries once more, within `HANDSHAKE_TIMEOUT_S`.
    """
    host, _, port = bootstrap.split(",")[0].strip().rpartition(":")
    host = host.strip("[]")
    with suppress(OSError, BackfillError):
        context = security.tls_context()
        with socket.create_connection((host, int(port)), timeout=HANDSHAKE_TIMEOUT_S) as raw:
            try:
                with context.wrap_socket(raw, server_hostname=host) as connection:
                    # In TLS 1.3 a client learns only now that its own certificate is refused.
                    connection.recv(1)
            except ssl.SSLCertVerificationError as error:
                return f"the broker's certificate: {error.verify_message.rstrip('.')}"
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return None  # a closed connection is no statement about certificates
            except ssl.SSLError as error:
                return (error.reason or "").replace("_", " ").lower() or None
    return None
