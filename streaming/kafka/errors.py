"""librdkafka's errors as ours.

Every `KafkaException` leaves through `translated`, as an error that names the broker and the next step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from schemas.errors import BackfillError, Code, EnvironmentProblem, Fenced, InputError, TopicError
from schemas.faults import nearest
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.security import why_no_handshake, why_no_token

LEADER_MOVES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
    }
)
"""Errors of a partition whose leader has changed, or is not chosen yet, or has restarted; the last one is librdkafka's
own, for a partition without a known leader."""
COORDINATOR_MOVES = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Errors of a group whose coordinator has changed or is loading: after the broker's start, or for a new group."""
_UNREACHABLE = (
    LEADER_MOVES
    | COORDINATOR_MOVES
    | frozenset(
        {
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
            KafkaError._TIMED_OUT,
            KafkaError._MSG_TIMED_OUT,
            KafkaError._TIMED_OUT_QUEUE,
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError.BROKER_NOT_AVAILABLE,
        }
    )
)
_NO_RIGHT = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_REFUSED = _NO_RIGHT | {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})
"""Errors of a reader whose offset a broker does not have: deleted, or not there yet, as on a leader that has just been
elected. Whether anything is lost, only the partition's watermarks tell."""


def translate(error: KafkaError, settings: KafkaSettings, *, what: str) -> BackfillError:
    """The error to raise; `what` is the location or action that failed: `orders-0@12`, `orders`, `connecting`."""
    code, name = error.code(), error.name()
    if code == KafkaError._SSL:
        return _no_tls(why_no_handshake(settings.bootstrap, settings.security) or name, settings, what=what)
    if code in _UNREACHABLE:
        # A broker that refuses this client's certificate just closes the connection (TLS 1.3).
        if settings.security.encrypted and (
            reason := why_no_handshake(settings.bootstrap, settings.security)
        ):
            return _no_tls(reason, settings, what=what)
        # The error is the same while the client gets no token from its server.
        oauth = settings.security.oauth
        if oauth is not None and (problem := why_no_token(oauth)):
            return problem
        return EnvironmentProblem(
            Code.BROKER_UNREACHABLE,
            where=what,
            found=f"no answer from {settings.bootstrap} within {settings.wait_s:g} s ({name})",
        )
    if code in _REFUSED:
        return _refused(code, name, settings, what=what)
    if code in _FENCED:
        return Fenced(
            Code.FENCED,
            where=what,
            found=f"a newer instance with the same transactional id, or an end by timeout ({name})",
        )
    if code in _MISSING:
        return topic_missing(what, settings)
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return InputError(
            Code.RECORD_TOO_LARGE,
            where=what,
            found=f"a record that {settings.bootstrap} does not take ({name})",
            expected="topics whose max.message.bytes is what limits.record_bytes and their form need",
            next_step="raise max.message.bytes of the outputs",
        )
    reason = f"Kafka's error {name} ({error.str()})"
    return EnvironmentProblem(Code.BROKER_FAILED, where=what, found=reason, bootstrap=settings.bootstrap)


def _no_tls(reason: str, settings: KafkaSettings, *, what: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        Code.AUTH_FAILED,
        where=what,
        found=f"no TLS with {settings.bootstrap} ({reason})",
        expected="a broker and a client that accept each other's certificates",
        next_step="check kafka.ca_file, the dates of both certificates, and that kafka.bootstrap names a host of "
        "the broker's certificate",
    )


def _refused(code: int, name: str, settings: KafkaSettings, *, what: str) -> BackfillError:
    if code in _NO_RIGHT:
        return EnvironmentProblem(
            Code.AUTH_FAILED,
            where=what,
            found=f"{settings.bootstrap} does not allow this ({name})",
            expected="the rights that docs/security.md lists",
            next_step="grant them to this user on the broker",
        )
    if settings.security.oauth is not None:
        # librdkafka's error is the same if the token server is unreachable, or refuses.
        return why_no_token(settings.security.oauth) or EnvironmentProblem(
            Code.AUTH_FAILED,
            where=what,
            found=f"{settings.bootstrap} refused a login by token ({name})",
            expected="a broker that takes OAUTHBEARER and the tokens of kafka.oauth.token_url",
            next_step="compare the issuer, audience, scope and keys that the broker asks for, and its mechanisms",
        )
    return EnvironmentProblem(
        Code.AUTH_FAILED, where=what, found=f"{settings.bootstrap} refused the login ({name})"
    )


def topic_missing(topic: str, settings: KafkaSettings, known: Collection[str] = ()) -> TopicError:
    """The error for a missing topic; it names the nearest one of those that are `known`."""
    likely = _nearest_topic(topic, known)
    found = f"no such topic on {settings.bootstrap}{likely}"
    next_step = None
    if likely:
        next_step = "correct the topic's name; or create the topic, if it is to be a new one"
    return TopicError(Code.TOPIC_MISSING, where=topic, found=found, next_step=next_step)


def _nearest_topic(topic: str, known: Collection[str]) -> str:
    """A question for the topic that may be meant: by a slip, or by a name without the prefix that connectors give."""
    names = sorted(name for name in known if not name.startswith("__"))
    tails = [name for name in names if name.casefold().endswith(f".{topic.casefold()}")]
    return f" (did you mean {tails[0]!r}?)" if tails else nearest(topic, names)


@contextmanager
def translated(settings: KafkaSettings, *, what: str) -> Iterator[None]:
    """Raise the errors of `schemas.errors` in place of KafkaException."""
    try:
        yield
    except KafkaException as raised:
        raise translate(raised.args[0], settings, what=what) from None


def is_refusal(error: KafkaError) -> bool:
    """True if the broker answered, and refused this client."""
    return error.code() in _REFUSED


def is_missing(error: KafkaError) -> bool:
    """True if the topic or partition is missing (or new: its leader is still to be chosen)."""
    return error.code() in _MISSING or error.code() == KafkaError.LEADER_NOT_AVAILABLE


class ErrorWatch:
    """Error callback of a client (`error_cb`), which has the reason of a failed connection before a call times out.

    A refused login is reported only here; the call itself would time out with a transport error. `poll` serves it.
    """

    def __init__(self) -> None:
        self.refused: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Called by librdkafka with each error; keeps a refused login or right."""
        if is_refusal(error):
            self.refused = error
