"""What each error expects and what to do about it, by code. `docs/errors.md` is written from it: `schemas.advice.page`.

A name in braces is a value that the raise site gives (`BackfillError(..., name=value)`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from schemas.advice.advice import Advice as Advice
from schemas.advice.initial import INITIAL
from schemas.advice.postgres import POSTGRES
from schemas.codes import Code

_GRAMMAR = "column op literal, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE, IS [NOT] NULL, AND, OR, NOT, parentheses"
_CONFIGURATION = {
    Code.CONFIG_INVALID: Advice(
        "a configuration as the reference describes it",
        "correct the file and start again; nothing was read or written",
    ),
    Code.SECRET_FILE_MODE: Advice(
        "a secret that only its owner can read (mode 0600)", "chmod 600 the file, owned by the service's user"
    ),
    Code.TABLE_INVALID: Advice(
        "a table with name, columns, primary_key and, if wanted, distribution, distribution_key, vnode_count",
        "correct the declaration and start again; nothing was read or written",
    ),
    Code.COLUMN_ABSENT: Advice(
        "every declared column in some of the first records",
        "correct the column's name, or its `field`; if the column came later, give it `fill: null`",
    ),
    Code.LOG_SHARED: Advice(
        "changes of one database under each name",
        "give each connector a topic.prefix of its own, and begin with a new topic; if it is one database, set "
        "upstream.on_log_reset: accept",
    ),
    Code.JOB_INVALID: Advice(
        "a job with name and output and, if wanted, columns, filter, output_partitions, read, rate_limit, "
        "latency_budget, replication_factor, topic_config, allow_retention, barrier_topic, sink, format, encoding, "
        "tombstones",
        "correct the job's definition; nothing was created",
    ),
    Code.JOB_NAME_INVALID: Advice(
        "a name of lower-case letters, digits and `-`, 63 at most, that does not begin with `-`",
        "correct the job's name; nothing was created",
    ),
    Code.JOB_CHANGED: Advice(
        "the definition that the job was created with",
        "restore it, give the changed job another name and output, or drop the job first",
    ),
    Code.JOB_EXISTS: Advice(
        "a name and topics that no other job has", "choose another name or output; see `backfill list`"
    ),
    Code.JOB_UNKNOWN: Advice(
        "a job of the configuration, or one that was created since and not dropped", "see `backfill list`"
    ),
    Code.RESCALE_REFUSED: Advice(
        "a lane for each upstream partition until every job of a table with distribution: upstream is complete",
        "leave lanes out or set it to the number of partitions; once the jobs are complete any that divides it will do",
    ),
    Code.NO_JOB: Advice(
        "a job, in the configuration or in the state",
        "add a job to the configuration, or create one with `backfill create`",
    ),
    Code.EXPRESSION_INVALID: Advice(_GRAMMAR, "correct the filter"),
    Code.EXPRESSION_NOT_ALLOWED: Advice(_GRAMMAR, "write the filter without it, or filter in the consumer"),
    Code.USAGE: Advice("the usage of the command", "correct the command line; see --help"),
}

_BARRIER = "header = curr in decimal, value = Avro of Barrier, curr > prev >= 0, partitions >= 1"
_INJECTOR = "correct what injects barriers into this topic; `run` leaves a record out with --skip-record"
_WRITERS = "find what else writes or removes barriers here, and run one injector"
_BARRIERS = {
    Code.BARRIER_MALFORMED: Advice(_BARRIER, _INJECTOR),
    Code.BARRIER_UNSUPPORTED: Advice(_BARRIER, _INJECTOR),
    Code.AMBIGUOUS_RECORD: Advice(
        "one header `barrier` and no key on each barrier, each after the one before it, and none on a change",
        "correct what sets the header; to leave this record out, start with --skip-record {record}",
    ),
    Code.BARRIER_REGRESSION: Advice("an epoch above {last}", _WRITERS),
    Code.BARRIER_GAP: Advice("prev {last}", _WRITERS),
    Code.BARRIER_LATE: Advice("an epoch above {last}", _WRITERS),
    Code.BARRIER_DISAGREE: Advice("the same as {other}", _WRITERS),
    Code.BARRIER_DUPLICATE_WITH_DATA: Advice("each barrier once in each partition", _WRITERS),
    Code.BARRIER_STALLED: Advice(
        "every transaction on the topic to end",
        "end its producer, or abort it: kafka-transactions.sh find-hanging names it, abort ends it",
    ),
    Code.NO_BARRIERS: Advice(
        "one every {interval}, as barrier_interval says",
        "start what injects barriers into this topic: `backfill barriers`, or its owner's service",
    ),
}

_PRODUCER = "correct the producer"
_SCHEMA = "check the producer's schema against the table's declaration"
_HISTORY = "read the topic from its beginning; if this is the beginning, correct the producer"
_COMPACTED = "Found by `verify`, `consume --fold` and compaction, which logs it while the service goes on."
_CHANGES = {
    Code.CHANGE_MALFORMED: Advice("schemaless Avro of {what} as the table declares it", _SCHEMA),
    Code.AVRO_TRUNCATED: Advice("schemaless Avro of {what} as the table declares it", _SCHEMA),
    Code.AVRO_LIMIT: Advice(
        "lengths and counts that such a record can have",
        "correct what writes it; `run` leaves a record out with --skip-record",
    ),
    Code.AVRO_TRAILING: Advice("schemaless Avro of {what} as the table declares it", _SCHEMA),
    Code.SCHEMA_UNKNOWN: Advice(
        "an id that the schema registry knows",
        "see which registry the producer uses, and compare registry.url; register its schema there again, or correct "
        "the producer",
    ),
    Code.SCHEMA_INCOMPATIBLE: Advice(
        "a schema whose fields fit the table's columns of these names, and their time and decimal",
        "check the producer's schema against the table's declaration, and upstream.time and upstream.decimal",
    ),
    Code.JSON_MALFORMED: Advice("a JSON object of the table's columns, each in its type's form", _SCHEMA),
    Code.BAD_ENCODING: Advice("UTF-8 in column {column}", _PRODUCER),
    Code.UNKNOWN_OP: Advice("INSERT, UPDATE or DELETE", _PRODUCER),
    Code.VALUE_OUT_OF_RANGE: Advice(
        "a value that fits the type of column {column}", "correct the producer or the declaration"
    ),
    Code.EMPTY_RECORD: Advice("a key record and a Change", _PRODUCER),
    Code.TOMBSTONE_UNSUPPORTED: Advice("a DELETE with its before", _PRODUCER),
    Code.TRUNCATE_UNSUPPORTED: Advice(
        "events of rows: c, u, d, and r of a snapshot",
        "the table was emptied at once, and its rows are still in the replica: begin anew with a new state and outputs",
    ),
    Code.LOG_WENT_BACK: Advice(
        "changes of one log in the order of their positions, or the rows of a new snapshot beside them",
        "see whether the database was restored or moved; rows that it lost stay in the replica. To take these changes, "
        "start once with --accept-log-reset, or set upstream.on_log_reset: accept",
    ),
    Code.TOAST_UNAVAILABLE: Advice(
        "a stored row that has the value which the event leaves out, of column {column}",
        "set REPLICA IDENTITY FULL on the table, or have the connector read a snapshot",
    ),
    Code.BEFORE_MISSING: Advice(
        "the whole row before each change, as upstream.before: full promises",
        "set REPLICA IDENTITY FULL on the table, or leave upstream.before out; with new state and outputs",
    ),
    Code.PK_NULL: Advice(
        "a value in every column of the primary key",
        "correct the producer; a row without a key can't be followed",
    ),
    Code.KEY_MISMATCH: Advice("the row's primary key as record key, as the format writes it", _PRODUCER),
    Code.UPDATE_CHANGES_PK: Advice("a DELETE of the old key and an INSERT of the new one", _PRODUCER),
    Code.INSERT_EXISTING_KEY: Advice("INSERT of an absent key only", _HISTORY),
    Code.DELETE_MISSING_KEY: Advice("UPDATE and DELETE of a present key only", _HISTORY),
    Code.OLD_ROW_MISMATCH: Advice("before equal to the row that is there", _HISTORY),
    Code.RECORD_TOO_LARGE: Advice(
        "at most {limit} bytes of key and value, as {setting} says",
        "raise {setting}, or correct the producer",
    ),
    Code.KEY_IN_TWO_PARTITIONS: Advice("all changes of a key in one partition, here {partition}", _PRODUCER),
}

_NEW_TOPIC = "name another topic, or declare the number of partitions that it has"
_TOPICS = {
    Code.TOPIC_MISSING: Advice("a topic that exists", "create the topic, or correct its name"),
    Code.TOPIC_REPLACED: Advice(
        "the topic that the state was made from ({id})",
        "restore that topic, or begin with a new state folder and new output topics",
    ),
    Code.BARRIERS_TAKEN: Advice(
        "one injector: two services with states of their own would both obey each request",
        "stop that one, or give this one a `barrier_topic` and a `control_topic` of its own",
    ),
    Code.BARRIER_TOPIC_MISMATCH: Advice(
        "a topic with as many partitions as {topic}: {partitions}",
        "name another barrier_topic; the service makes it",
    ),
    Code.SAME_TOPIC: Advice(
        "a topic of the job's own, neither the upstream nor a topic beside it",
        "name another output; nothing was created",
    ),
    Code.PARTITIONS_CHANGED: Advice(
        "{partitions}, as {before}",
        "a topic can't gain partitions while it is read: make a new topic and produce to it",
    ),
    Code.TOPIC_NOT_CREATED: Advice(
        "a topic that the broker is ready to make",
        "have as many brokers up as it shall have copies, and correct replication_factor or topic_config",
    ),
    Code.OUTPUT_TOPIC_MISMATCH: Advice(
        "{partitions} partitions, no compaction (it would take barriers and changes out), and at least {size} bytes a "
        "message",
        _NEW_TOPIC,
    ),
    Code.OUTPUT_LOSES_RECORDS: Advice(
        "a topic that keeps its changelog from the first record: retention.ms and retention.bytes -1",
        "set them to -1 on the topic, or say `allow_retention: true` in the job",
    ),
    Code.OUTPUT_SCHEMA_INCOMPATIBLE: Advice(
        "a subject that is new, or whose schemas can be read by this one",
        "name another output, choose the columns that were there, or change the subject's compatibility in the "
        "registry; nothing was created",
    ),
    Code.OUTPUT_TOPIC_MISSING: Advice(
        "the output of an open job",
        "drop its job (`backfill drop`) and create it with a new topic; or restore the topic",
    ),
    Code.FOREIGN_RECORDS: Advice(
        "an output topic that nothing else writes to",
        "see what writes to this topic; create the job again with a new output topic",
    ),
    Code.DATA_LOST: Advice(
        "every record from {start} on",
        "raise the topic's retention; what is gone can't be read again: begin anew with a whole topic",
    ),
    Code.COMPACTED_INPUT: Advice(
        "delete: a compacted topic forgets changes", "use a topic that keeps every record"
    ),
    Code.COMPACTION_LAG_TOO_SHORT: Advice(
        "at least {least}, in which a batch that failed reads the same records again",
        "set min.compaction.lag.ms of the topic, or ask its owner to",
    ),
    Code.BROKER_UNREACHABLE: Advice(
        "a Kafka broker there", "start the broker, or correct kafka.bootstrap or kafka.security"
    ),
    Code.BROKER_FAILED: Advice(
        "the broker to carry out the request", "look this error up and check the broker at {bootstrap}"
    ),
    Code.AUTH_FAILED: Advice(
        "a user and a secret that the broker knows",
        "check kafka.username, its password, kafka.sasl_mechanism and kafka.security",
    ),
    Code.REGISTRY_UNREACHABLE: Advice(
        "a schema registry there, for schemas that the state does not have",
        "start the registry, or correct registry.url",
    ),
    Code.REGISTRY_REFUSED: Advice(
        "a schema registry that lets this user read schemas, and register those of outputs",
        "check registry.url with its path, and the user, password, token or certificate in the section registry",
    ),
}

_DECLARED = "the table as it was declared when the state was made"
_RESTORE = "restore the declaration, or give the changed table a new state folder"
_STATE = {
    Code.STATE_PATH_INVALID: Advice(
        "a folder that only this service writes to",
        "name another folder as `state`, or restore this one from a backup",
    ),
    Code.OUTPUT_OUT_OF_STEP: Advice(
        "outputs that end with the barrier of the state, or one later",
        "restore the newest state and the topics as they were (with an older one records would be sent twice); else "
        "begin with a new state folder and new output topics",
    ),
    Code.STATE_TABLE_CORRUPT: Advice(
        "the tables as this service left them",
        "restore the whole state folder from a backup, or begin with a new one and new output topics",
    ),
    Code.STATE_FOREIGN: Advice(
        "one of {topic}, as the configuration says",
        "name the state's topic, or a state folder of this topic's own",
    ),
    Code.STATE_CONFLICT: Advice(
        "one instance of the service for one state folder",
        "see which other process uses this state; the newest one goes on",
    ),
    Code.VNODE_LAYOUT_CHANGED: Advice(_DECLARED, _RESTORE),
    Code.PK_CHANGED: Advice(_DECLARED, _RESTORE),
    Code.SCHEMA_CHANGED: Advice(_DECLARED, _RESTORE),
    Code.FENCED: Advice(
        "to be the only instance",
        "nothing: the newer instance goes on where this one stopped; start this one again only to take over",
    ),
    Code.OUTCOME_UNKNOWN: Advice(
        "the broker to say whether it committed", "start again: the service looks at the end of the topic"
    ),
}

_MACHINE = {
    Code.JAVA_MISSING: Advice(
        "Java {oldest} to {newest}",
        "install a Java 17 runtime (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) and set JAVA_HOME to "
        "it if it is not the first on the PATH",
    ),
    Code.DEPENDENCY_MISMATCH: Advice("the locked packages", "uv sync --frozen"),
    Code.ADDRESS_UNUSABLE: Advice(
        "an address of this machine with a free port", "choose another port, or end what listens there"
    ),
    Code.NOT_SERVED: Advice(
        "a running service", "see whether the service runs and keeps up (`backfill status`)"
    ),
    Code.NO_PROGRESS: Advice(
        "one to end within {late}",
        "look at Spark's log, its executors and the storage of `state`; a Spark job is ended after batch_timeout and "
        "tried again",
    ),
    Code.ROWS_FOLDER_FOREIGN: Advice(
        "a folder of user {user}, who runs this, or none: rows of the table are kept there, and believed",
        "find out who made it, and delete it; or name a folder that no other user can write to as rows_folder",
    ),
    Code.ROWS_FOLDER_UNUSABLE: Advice(
        "a folder that this user can write to, and 256 MiB of address space at least",
        "give the folder to this user or name another one as rows_folder; raise a limit on the address space",
    ),
    Code.ROWS_DISK_FULL: Advice(
        "room for the rows by key of this machine's lanes, about the size of the table",
        "make room there, or name a folder on a larger disk as rows_folder (by default TMPDIR); the service goes on "
        "where it was",
    ),
    Code.SPARK_FAILED: Advice(
        "a stream that goes on, and jobs that come to their end",
        "read the log file of Spark; the service goes on where it was, at the latest when it is started again",
    ),
}

_VERIFY = {
    Code.LAW_BROKEN: Advice(
        "an output that equals its upstream up to its positions, at each barrier",
        "look at the findings above; one of side upstream is the producer's, one of side output is worth a report",
    ),
}

TABLE = {
    **_CONFIGURATION,
    **INITIAL,
    **POSTGRES,
    **_BARRIERS,
    **_CHANGES,
    **_TOPICS,
    **_STATE,
    **_MACHINE,
    **_VERIFY,
}


def filled(text: str, values: Mapping[str, object]) -> str:
    """A text with values for its placeholders. One without a value is no reason to lose the error: it becomes `…`."""
    return text.format_map(defaultdict(lambda: "…", values))


def expectation(code: Code, **values: object) -> str:
    """What an error of this code expected."""
    return filled(TABLE[code].expected, values)
