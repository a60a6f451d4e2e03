"""Settings of a secured connection by the names of both Kafka clients, and the reasons of refused handshakes.

librdkafka gets secrets as values and files as paths. The Java client gets everything as values: its JAAS line is
written here, with the user's text quoted, and its PEM texts are read here. Both verify the broker's certificate and
host name, whatever their defaults are.

Tokens of an OIDC token server, for the client credentials of the configuration (RFC 6749, 4.4), are requested here for
the schema registry's client, and for the reason why a client of Kafka got no token: those request tokens of their own.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

from cryptography.hazmat.primitives import serialization

from schemas.errors import BackfillError, Code, EnvironmentProblem
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
WAIT_S = 10.0
"""The longest wait for the token server's answer."""
_MAX_ANSWER_BYTES = 1 << 18
_USED_SHARE = 0.8
"""The share of a token's life after which it is renewed, as Kafka's clients do."""
_AWAY = frozenset({Code.BROKER_UNREACHABLE, Code.REGISTRY_UNREACHABLE})
_tokens: dict[OAuth, BearerToken] = {}
_asking: dict[OAuth, threading.Lock] = {}
_lock = threading.Lock()


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


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A bearer token; `expires_s` is its end and `stale_s` the time to renew it, both by `time.time`."""

    text: str
    expires_s: float
    stale_s: float

    def __repr__(self) -> str:
        return f"BearerToken(…, expires_s={self.expires_s})"


def token_for(oauth: OAuth) -> BearerToken:
    """A token that is valid for a while, from memory or from the token server; concurrent threads get the same.

    If the server is away, the token before is returned for as long as it is valid.

    Raises: EnvironmentProblem: for Kafka AUTH_FAILED or BROKER_UNREACHABLE, for the registry REGISTRY_REFUSED or
    REGISTRY_UNREACHABLE; ConfigError when the secret can't be read.
    """
    with _lock:
        mine = _asking.setdefault(oauth, threading.Lock())
    with mine:
        known, now_s = _tokens.get(oauth), time.time()
        if known is not None and now_s < known.stale_s:
            return known
        try:
            _tokens[oauth] = _asked(oauth)
        except EnvironmentProblem as problem:
            if known is None or now_s >= known.expires_s or problem.code not in _AWAY:
                raise
            return known
        return _tokens[oauth]


def why_no_token(oauth: OAuth) -> BackfillError | None:
    """The token server's reason to refuse this client now, whatever is cached; None if it issues a token.

    For errors of clients that request tokens themselves, and give no reason when they fail.
    """
    try:
        _asked(oauth)
    except BackfillError as problem:
        return problem
    return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the secret is sent to the declared address alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _asked(oauth: OAuth) -> BearerToken:
    # In the form of Kafka's clients, without the encoding of RFC 6749, 2.3.1: the server has to accept all three.
    login = f"{oauth.client_id}:{oauth.client_secret.read()}"
    wanted = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    request = urllib.request.Request(  # noqa: S310 (http or https, by the configuration's pattern)
        oauth.token_url,
        urllib.parse.urlencode(wanted).encode(),
        {
            "Authorization": "Basic " + base64.b64encode(login.encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    https = urllib.request.HTTPSHandler(context=oauth.tls_context())
    began_s = time.time()
    try:
        with urllib.request.build_opener(https, _NoRedirects).open(request, timeout=WAIT_S) as answer:
            said = answer.read(_MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        if error.code >= 500 or error.code == 429:
            raise _unreachable(oauth, f"status {error.code}") from None
        raise _refused(oauth, f"status {error.code}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None)
        raise _unreachable(oauth, type(reason if isinstance(reason, Exception) else error).__name__) from None
    return _read(oauth, said, began_s)


def _read(oauth: OAuth, said: bytes, began_s: float) -> BearerToken:
    """The token of an answer. Its life counts from before the request, so that it never ends early."""
    try:
        answer: dict[str, Any] = json.loads(said)
        text, life_s = answer["access_token"], float(answer.get("expires_in", 0))
        kind = str(answer.get("token_type", "bearer")).lower()
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text:
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _refused(oauth, "an answer without an access_token") from None
    if kind != "bearer" or not life_s > 0:
        raise _refused(oauth, "a token that is no bearer token, or has no expires_in")
    return BearerToken(text, began_s + life_s, began_s + life_s * _USED_SHARE)


def _refused(oauth: OAuth, found: str) -> EnvironmentProblem:
    code = Code.REGISTRY_REFUSED if _is_of_registry(oauth) else Code.AUTH_FAILED
    return EnvironmentProblem(
        code,
        where=f"{oauth.section}.token_url",
        found=f"no token from the token server ({found})",
        expected="a client that it knows, with this secret, and a scope that it may have",
        next_step=f"check client_id, its secret, scope and token_url in {oauth.section}",
    )


def _unreachable(oauth: OAuth, found: str) -> EnvironmentProblem:
    code = Code.REGISTRY_UNREACHABLE if _is_of_registry(oauth) else Code.BROKER_UNREACHABLE
    return EnvironmentProblem(
        code,
        where=f"{oauth.section}.token_url",
        found=f"no answer from the token server ({found})",
        expected="a token server there",
        next_step=f"start it, or correct token_url or ca_file in {oauth.section}",
    )


def _is_of_registry(oauth: OAuth) -> bool:
    return oauth.section.startswith("registry")
