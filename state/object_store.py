"""State in an object store: options for pyarrow and delta-rs, so that both reach the same one.

The address is `s3://bucket/prefix`. Everything else comes from AWS's own variables: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE; AWS_REGION; and
AWS_ENDPOINT_URL for a store that is not Amazon's. Both clients read the credentials by themselves. pyarrow ignores the
endpoint (apache/arrow#49643), and delta-rs refuses plain http unless it is allowed by name.

Of two commits on top of one version exactly one may land. A file system refuses a name that exists, a store does a
*conditional put* (`If-None-Match: *`). A store that accepts the header and ignores it would let two instances own one
state, so a new state tries it first (`fault_of`).
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyarrow import fs

_SCHEME = "s3://"
_PROBE = pa.schema([("probe", pa.bool_())])
_RIVALS, _ROUNDS = 4, 3


def is_store(root: str) -> bool:
    """True for an address of an object store, False for a folder of this machine."""
    return "://" in root


def open_store(root: str) -> tuple[fs.FileSystem, str]:
    """The file system, and the path in it. Raises: OSError, pa.ArrowInvalid for an address that names no store."""
    endpoint = _endpoint()
    if not root.startswith(_SCHEME):
        filesystem, path = fs.FileSystem.from_uri(root)
        return filesystem, path
    # Most files are small, and one that is opened when it is written takes one request in place of three.
    if endpoint is None:
        joint = "&" if "?" in root else "?"
        filesystem, path = fs.FileSystem.from_uri(f"{root}{joint}allow_delayed_open=true")
        return filesystem, path
    address = urlsplit(endpoint)
    filesystem = fs.S3FileSystem(
        endpoint_override=address.netloc,
        scheme=address.scheme,
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
        allow_delayed_open=True,
    )
    return filesystem, root.removeprefix(_SCHEME)


def delta_options(root: str) -> dict[str, str] | None:
    """Options of delta-rs for tables below `root`; credentials it takes from the environment itself.

    Raises: OSError where the bucket's region is not configured and can't be found.
    """
    if not root.startswith(_SCHEME):
        return None
    options = {"AWS_REGION": str(open_store(root)[0].region), "aws_conditional_put": "etag"}
    endpoint = _endpoint()
    if endpoint is not None:
        options["AWS_ENDPOINT_URL"] = endpoint
        options["AWS_ALLOW_HTTP"] = "true" if endpoint.startswith("http://") else "false"
    return options


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def fault_of(root: str, journal: str) -> str | None:
    """The reason why a new state can't be kept below `root`, found with a table that is deleted again; None if it can.

    Also None where `journal` exists: an old state is not tested.
    """
    probe = f"{root.rstrip('/')}/probe-{uuid.uuid4().hex[:12]}"
    try:
        filesystem, path = open_store(journal)
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            return None
        wins = one_commit_wins(probe, delta_options(root))
        _delete(filesystem, open_store(probe)[1])
    except (OSError, DeltaError, pa.ArrowInvalid) as error:
        # Its message may quote credentials of the address.
        return f"a store that does not let it write ({type(error).__name__})"
    return None if wins else "a store on which two commits of one version both landed"


def _delete(filesystem: fs.FileSystem, folder: str) -> None:
    """Delete the files first: a store with real folders refuses to delete one that is not empty."""
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        if info.type == fs.FileType.File:
            filesystem.delete_file(info.path)
    filesystem.delete_dir(folder)


def one_commit_wins(uri: str, options: dict[str, str] | None) -> bool:
    """False if two concurrent commits of one version both landed, in a table at `uri` that is left there.

    delta-rs checks for a rival before it writes, so only commits that check at the same moment test the store. False is
    a proof; True is none.
    """
    DeltaTable.create(uri, _PROBE, storage_options=options)
    with ThreadPoolExecutor(_RIVALS) as pool:
        for _ in range(_ROUNDS):
            rivals = [DeltaTable(uri, storage_options=options) for _ in range(_RIVALS)]
            if sum(pool.map(_lands, rivals)) > 1:
                return False
    return True


def _lands(table: DeltaTable) -> bool:
    added = AddAction(f"{uuid.uuid4().hex}.parquet", 0, {}, 0, True, "{}")
    once = CommitProperties(max_commit_retries=0)
    try:
        table.create_write_transaction([added], mode="append", schema=_PROBE, commit_properties=once)
    except CommitFailedError:
        return False
    return True
