"""A token server in this process (OIDC, client credentials), over HTTPS, and a broker that takes its tokens.

Its tokens are JWTs with a signature, which the broker checks by the server's published keys.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.kit.listening import Listener, ListeningBroker
from tests.kit.local_http import serving
from tests.kit.secure import Certificates, private

CLIENT, SECRET, SCOPE = "backfill", "canaryOauth+&% secret", "kafka"
AUDIENCE, ISSUER = "the-broker", "https://issuer.example"
_KEY = "key-1"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_CHECKING = "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class TokenServer:
    """`status`: answered to everything while it is set; `body` in place of a token; `life_s` of each token."""

    life_s: int = 3_600
    audience: str = AUDIENCE
    status: int | None = None
    body: bytes | None = None
    location: str | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    """Fields of the body of each question."""
    given: list[str] = field(default_factory=list)
    url: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))

    def keys(self) -> str:
        """Its public keys: a JWK set."""
        numbers = self.key.public_key().public_numbers()
        entry = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": _KEY}
        return json.dumps({"keys": [{**entry, "n": _number(numbers.n), "e": _number(numbers.e)}]})

    def token(self, *, signed_by: rsa.RSAPrivateKey | None = None) -> str:
        now_s = int(time.time())
        claims = {
            "sub": CLIENT,
            "iss": ISSUER,
            "aud": self.audience,
            "scope": SCOPE,
            "iat": now_s,
            "exp": now_s + self.life_s,
            "jti": str(len(self.given)),
        }
        head = {"alg": "RS256", "kid": _KEY, "typ": "JWT"}
        said = ".".join(_encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = (signed_by or self.key).sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{said}.{_encoded(signature)}"

    def answer(self, authorization: str, body: str) -> tuple[int, bytes]:
        wanted = dict(urllib.parse.parse_qsl(body))
        self.asked.append(wanted)
        if self.status is not None:
            return self.status, b'{"error": "secret details"}'
        if self.body is not None:
            return 200, self.body
        login = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if login != f"{CLIENT}:{SECRET}" or wanted.get("grant_type") != "client_credentials":
            return 401, b'{"error": "invalid_client"}'
        self.given.append(self.token())
        answer = {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": self.life_s}
        return 200, json.dumps(answer).encode()


@contextmanager
def token_server(certificates: Certificates | None, **settings: Any) -> Iterator[TokenServer]:
    """It answers while the block lasts; by HTTPS with a certificate of these, by HTTP without."""
    server = TokenServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, said = server.answer(self.headers.get("Authorization", ""), body)
            self.send_response(status)
            if server.location is not None:
                self.send_header("Location", server.location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that it has there)
            pass

    tls = None
    if certificates is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificates.issue("token-server"))
    with serving(Handler, tls=tls) as address:
        server.url = f"{address}/token"
        yield server


@dataclass(frozen=True)
class TokenBroker:
    """A broker with a listener for tokens, and the server that gives them."""

    broker: ListeningBroker
    server: TokenServer
    certificates: Certificates
    folder: Path

    def section(self, **oauth: Any) -> dict[str, Any]:
        """The section `kafka` of a configuration, as its user would write it."""
        declared = {
            "token_url": self.server.url,
            "client_id": CLIENT,
            "client_secret_file": str(private(self.folder / "client-secret", SECRET + "\n")),
            "scope": SCOPE,
            "ca_file": str(self.certificates.ca_file),
        }
        return {
            "bootstrap": self.broker.address("OAUTH"),
            "security": "sasl_ssl",
            "ca_file": str(self.certificates.ca_file),
            "oauth": {key: value for key, value in {**declared, **oauth}.items() if value is not None},
        }


@contextmanager
def token_broker(folder: Path, **settings: Any) -> Iterator[TokenBroker]:
    """Both, by TLS. Connections end with the token that they were opened by, unless the client shows a newer one."""
    certificates = Certificates(folder / "certificates")
    certificate, key = certificates.issue("broker")
    with token_server(certificates, **settings) as server:
        published = folder / "keys.json"
        published.write_text(server.keys())
        listener = Listener(
            "OAUTH",
            "SASL_SSL",
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": certificate.read_text(),
                "ssl.keystore.key": key.read_text(),
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "oauthbearer.sasl.jaas.config": f"{_MODULE} required;",
                "oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
                "oauthbearer.connections.max.reauth.ms": "3600000",
            },
        )
        broker = ListeningBroker(
            [listener],
            data=folder / "kafka",
            log=folder / "kafka.log",
            settings={
                "sasl.oauthbearer.jwks.endpoint.url": published.as_uri(),
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": ISSUER,
                # By default a broker of 4.1 looks at a token as a client does, which is no look at its signature.
                "sasl.oauthbearer.jwt.validator.class": _CHECKING,
            },
            java_options=[
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={published.as_uri()}",
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={published}",
            ],
        )
        with broker:
            yield TokenBroker(broker, server, certificates, folder)
