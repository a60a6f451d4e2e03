"""Changes the pace at which a running service reads its table from the database, at its own address.

It is no control request: nothing that is sent depends on the pace, so it need not wait for a barrier, and takes effect
with the next chunk.
"""

from __future__ import annotations

import json
import urllib.error
from typing import Any, Literal

from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.settings.http import HttpConfig, read_token
from streaming.control.condition import opened

Action = Literal["pause", "resume", "throttle"]
_PATH = "/api/v1/initial"


def set_pace(config: HttpConfig, action: Action, rate_limit: int | None = None) -> dict[str, Any]:
    """Pause, resume or throttle; `rate_limit` None takes a limit away. What the service says of its reading then.

    Raises: ConfigError(USAGE) for a configuration without an address or a token; as `read_token`;
    EnvironmentProblem(NOT_SERVED); ConfigError(INITIAL_NOT_READ), and what else the service refuses.
    """
    token = _token(config)
    body = {"rate_limit": rate_limit} if action == "throttle" else {}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with opened(config, f"{_PATH}/{action}", headers, json.dumps(body).encode()) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as refused:
        raise _refusal(refused) from None
    except (OSError, ValueError) as error:
        found = f"no answer at http.listen ({type(error).__name__})"
        raise EnvironmentProblem(Code.NOT_SERVED, where="http.listen", found=found) from None


def _token(config: HttpConfig) -> str:
    token = None if config.listen is None or config.port == 0 else read_token(config)
    if token is None:
        missing = "http.token_file" if config.listen is not None and config.port else "http.listen"
        raise ConfigError(
            Code.USAGE,
            where=missing,
            found="a service that can't be steered over HTTP",
            expected="http.listen with a port, and http.token_file",
            next_step="set both, or change initial.postgres.rate_limit and start the service again",
        )
    return token


def _refusal(refused: urllib.error.HTTPError) -> BackfillError:
    try:
        said = json.loads(refused.read(10_000))
        return ConfigError(
            Code(said["code"]), found=said["found"], expected=said["expected"], next_step=said["next_step"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        found = f"status {refused.code}"
        return EnvironmentProblem(Code.NOT_SERVED, where="http.listen", found=found)
