"""The upstream of a scenario: written in full before anything runs, as the simulation wants it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.codec.logs import MYSQL, POSTGRESQL, LogId
from schemas.formats.append import AppendFormat
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import Add, Drop, Lanes, Mutation, Pause, Resume, Throttle
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from tests.kit.avro_codec import KeyCodec
from tests.kit.tables import vnode_of
from tests.kit.upstream import RowsUpstream, Upstream
from tests.scenarios.jobs import declaration
from tests.scenarios.keys import KEYLESS, MOST_VNODES, Keys, by_partition, table_of
from tests.scenarios.script import Command, ScriptError
from tests.simulation.altering import FILL, GrowingChangelog, grown, narrowed
from tests.simulation.beside import BesideChangelog
from tests.simulation.changelog import Changelog
from tests.simulation.connector import ConnectorUpstream, FromConnector, WholeFromConnector
from tests.simulation.initial import MemorySource
from tests.simulation.rows import AfterOnly
from tests.simulation.world import Setting

_OF_OTHERS: dict[str, UpstreamFormat] = {"full": DEFAULT, "after": AfterOnly(), "rows": AppendFormat()}
_OF_CONNECTORS: dict[str, UpstreamFormat] = {"full": WholeFromConnector(), "after": FromConnector()}


class PartitionedUpstream(Upstream):
    """Of a table whose vnodes are the partitions: a key is in the one that another table has for its vnode."""

    def __init__(self, hashed: TableSchema) -> None:
        super().__init__(by_partition(hashed), hashed.vnode_count)
        self._hashed = hashed

    def home(self, key: Key) -> int:
        return vnode_of(self._hashed, key)


class Writer:
    """Carries out the lines of a script that write to the upstream, and those before the first start.

    `setting` is what the simulation runs, once every line was seen.
    """

    def __init__(self) -> None:
        self._upstream: Upstream | None = None
        self._configured: list[JobDefinition] = []
        self._jobs: dict[str, JobDefinition] = {}
        self._mutation: Mutation | None = None
        self._faulty: list[tuple[int, int]] = []
        self._limits = Limits()
        self._changelog: type[Changelog] = Changelog
        self._format: UpstreamFormat = DEFAULT
        self.with_c: set[tuple[int, int]] | None = None
        """The records that have the field `c`, of a table that grows."""
        self._initial: MemorySource | None = None
        self.moments: dict[int, int] = {}
        """At which moment the database is behind a line, where the table is read from one."""
        self.keys: Keys

    @property
    def upstream(self) -> Upstream:
        assert self._upstream is not None, "a scenario starts with `table`"
        return self._upstream

    @property
    def table(self) -> TableSchema:
        """Of the upstream."""
        return self.upstream.table

    def write(self, commands: Iterable[Command]) -> None:
        """Carry out a script's lines; those of others are left out. Raises: ScriptError."""
        for command in commands:
            if self._upstream is None and command.name != "table":
                raise ScriptError(command.line, "a scenario starts with `table`")
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        handler = getattr(self, f"do_{command.name}", None)
        if handler is not None:
            handler(command)

    def setting(self) -> Setting:
        """All barriers stay back until the player lets them come; the last ones let every job finish."""
        if self._mutation is not None:
            self.upstream.barrier(self._mutation)
        for last in self._closing():
            self.upstream.barrier(last)
        if self.with_c is not None:
            changelog: Changelog = GrowingChangelog(self.upstream, frozenset(self.with_c))
        else:
            faulty = frozenset(self._faulty)
            changelog = self._changelog(self.upstream, faulty, self._format, initial=self._initial)
        return Setting(
            self.table,
            changelog,
            tuple(self._configured),
            self._jobs,
            lanes=(1,),
            compactions=True,
            closing=len(changelog.barriers[0]),
            limits=self._limits,
            parks=self.with_c is None,
        )

    def _closing(self) -> Sequence[Mutation | None]:
        names = {job.name: None for job in self._jobs.values()}
        return Resume(None), *(Throttle(name, None) for name in names), None, None

    # before the first start --------------------------------------------------------------------------------

    def do_table(self, command: Command) -> None:
        """`table vnodes=2 partitions=1 barriers=beside images=after connector=yes`: of the upstream.

        By default barriers are in the data, changes have their rows before, and no connector writes them. One sends a
        tombstone behind each delete, and leaves `v` out of an update that does not change it, unless images are full.
        With `images=rows` the table has no key: see `append`. With `distribution=upstream` a vnode is a partition. With
        `grows=yes` records may have a field `c`, which is a column from the first one on.
        """
        command.expect(1, "vnodes", "partitions", "barriers", "images", "connector", "distribution", "grows")
        is_connector = command.options.get("connector") == "yes"
        kinds = _OF_CONNECTORS if is_connector else _OF_OTHERS
        self._format = kinds[command.options.get("images", "full")]
        self._changelog = {"data": Changelog, "beside": BesideChangelog}[
            command.options.get("barriers", "data")
        ]
        partitions = command.number("partitions", 1)
        is_by_partition = command.options.get("distribution") == "upstream"
        table = self._table(command, partitions if is_by_partition else command.number("vnodes", 2))
        if command.options.get("grows") == "yes":
            self._upstream, self.with_c = Upstream(grown(table), partitions), set()
            return
        if is_by_partition:
            self._upstream = PartitionedUpstream(table)
            return
        if self._format.images is Images.ROWS:
            self._upstream = RowsUpstream(KEYLESS, partitions)
            return
        self._upstream = (
            ConnectorUpstream(table, partitions, without=1) if is_connector else Upstream(table, partitions)
        )

    def _table(self, command: Command, vnodes: int) -> TableSchema:
        if not 2 <= vnodes <= MOST_VNODES:
            raise ScriptError(command.line, f"vnodes are 2 to {MOST_VNODES}")
        table = table_of(vnodes)
        self.keys = Keys(table)
        return table

    def do_job(self, command: Command) -> None:
        """`job copy rate=2 filter="v = 'x'" read=topic`: a job of the configuration."""
        self._configured.append(self._job(command))

    def do_limits(self, command: Command) -> None:
        """`limits interval=3 part=1`: records from which on an interval goes in parts, and of a part."""
        command.expect(1, "interval", "part")
        self._limits = Limits(
            interval_records=command.number("interval", 3), part_records=command.number("part", 1)
        )

    def do_initial(self, command: Command) -> None:
        """`initial`: what was written so far is a table that the state starts from; the topic is read from here on."""
        command.expect(1)
        if self.upstream.barriers:
            raise ScriptError(command.line, "initial comes before the first barrier")
        ends = (entries[-1].offset + 1 if entries else 0 for entries in self.upstream.topic.partitions)
        self._initial = MemorySource(tuple(ends), tuple(self.upstream.rows.values()))

    def _job(self, command: Command) -> JobDefinition:
        declared = declaration(command, self.table)
        # The file of a table that grows stays behind.
        is_behind = self.with_c is not None and command.name == "job"
        job = JobDefinition.declare(declared, narrowed(self.table) if is_behind else self.table)
        # In the end it has the column, if it gets new ones.
        ends = JobDefinition.declare(declared, self.table) if job.sends_new else job
        self._jobs.setdefault(job.output, ends)
        return job

    # changes -----------------------------------------------------------------------------------------------

    def do_append(self, command: Command) -> None:
        """`append k x partition=1`: a row of `v` = x with the key k, `-` for none, of a table without keys."""
        command.expect(3, "partition")
        value = None if command.words[2] == "null" else command.words[2]
        self._rows(command).append((value,), self._raw(command), command.number("partition", 0))

    def do_nothing(self, command: Command) -> None:
        """`nothing k partition=1`: a record with a null value, likewise."""
        command.expect(2, "partition")
        self._rows(command).append_nothing(self._raw(command), command.number("partition", 0))

    def _rows(self, command: Command) -> RowsUpstream:
        if not isinstance(self.upstream, RowsUpstream):
            raise ScriptError(command.line, f"{command.name} is for a table with images=rows")
        return self.upstream

    def _raw(self, command: Command) -> bytes | None:
        return None if command.words[1] == "-" else command.words[1].encode()

    def do_insert(self, command: Command) -> None:
        """`insert a1 x`, and `c=5` where the record has that field."""
        self._put(command, present=False)

    def do_update(self, command: Command) -> None:
        """`update a1 y`."""
        self._put(command, present=True)

    def do_delete(self, command: Command) -> None:
        """`delete a1`."""
        command.expect(2, "partition")
        self.upstream.delete(self._id(command, present=True), partition=self._partition(command))

    def do_gain(self, command: Command) -> None:
        """`gain`: the topic has one more partition, of which the next barrier tells."""
        command.expect(1)
        self.upstream.gain()

    def _partition(self, command: Command) -> int | None:
        return command.number("partition", 0) if "partition" in command.options else None

    def do_move(self, command: Command) -> None:
        """`move a1 b1`: a change of key, by a connector."""
        command.expect(3)
        old, new = self._id(command, present=True), self._id(command, present=False, word=2)
        self._connector(command).move((old,), (new, self.upstream.rows[(old,)][1]))

    def do_again(self, command: Command) -> None:
        """`again events=2`: a connector that was started again sends its last changes once more, by partition."""
        command.expect(1, "events")
        for number in range(len(self.upstream.topic.partitions)):
            self._connector(command).again(number, command.number("events", 1))

    def do_log(self, command: Command) -> None:
        """`log shard2 at=5 ts=100 gtids=yes snapshot=yes`: what follows is of another database, or of a snapshot."""
        command.expect(2, "at", "ts", "gtids", "snapshot")
        name, has_gtids = command.words[1], command.options.get("gtids") == "yes"
        log = LogId(MYSQL, name, None, "uuid") if has_gtids else LogId(POSTGRESQL, name, name)
        ts_ms = command.number("ts", 0) or None
        is_snapshot = command.options.get("snapshot") == "yes"
        self._connector(command).goes_on(log, command.number("at", 1), ts_ms, snapshot=is_snapshot)

    def _connector(self, command: Command) -> ConnectorUpstream:
        if not isinstance(self.upstream, ConnectorUpstream):
            raise ScriptError(command.line, f"{command.name} is for a table with connector=yes")
        return self.upstream

    def do_bad(self, command: Command) -> None:
        """`bad a1`: a record with this key whose value is no change."""
        command.expect(2)
        key = (self.keys.id(command.words[1]),)
        number, topic = self.upstream.home(key), self.upstream.topic
        topic.append(number, KeyCodec(self.table.key_columns).encode(key), b"?")
        self._faulty.append((number, topic.partitions[number][-1].offset))

    def _put(self, command: Command, *, present: bool) -> None:
        command.expect(3, "partition" if self.with_c is None else "c")
        value = None if command.words[2] == "null" else command.words[2]
        key = self._id(command, present=present)
        if self.with_c is None:
            self.upstream.put((key, value), partition=self._partition(command))
            return
        has_c, c = "c" in command.options, command.options.get("c")
        self.upstream.put((key, value, FILL if c is None else None if c == "null" else int(c)))
        if has_c:
            number = self.upstream.home((key,))
            self.with_c.add((number, self.upstream.topic.partitions[number][-1].offset))

    def _id(self, command: Command, *, present: bool, word: int = 1) -> int:
        name, id_ = command.words[word], self._named(command, word)
        if ((id_,) in self.upstream.rows) != present:
            raise ScriptError(command.line, f"{name} is {'absent' if present else 'there already'}")
        return id_

    def _named(self, command: Command, word: int = 1) -> int:
        return self._id_of(command, command.words[word])

    def _id_of(self, command: Command, name: str) -> int:
        id_ = self.keys.id(name)
        if id_ is None:
            raise ScriptError(command.line, f"{name} is no key: a letter of a vnode and a number")
        return id_

    # barriers ----------------------------------------------------------------------------------------------

    def do_barrier(self, command: Command) -> None:
        """`barrier`: closes an interval; it carries the mutation before it, if there is one."""
        self.upstream.barrier(self._mutation)
        self._mutation = None

    def do_step(self, command: Command) -> None:
        """`step` begins with a barrier."""
        self.do_barrier(command)

    def do_repeat(self, command: Command) -> None:
        """`repeat`: the newest barrier is written again, as a producer that retries may do it."""
        command.expect(1)
        self.upstream.repeat_barrier(range(len(self.upstream.topic.partitions)))

    def do_create(self, command: Command) -> None:
        """`create late rate=1`: Add, on the next barrier."""
        self._mutate(command, Add(self._job(command).to_json()))

    def do_drop(self, command: Command) -> None:
        """`drop late`."""
        command.expect(2)
        self._mutate(command, Drop(command.words[1]))

    def do_pause(self, command: Command) -> None:
        """`pause late`, or `pause` for every job."""
        self._mutate(command, Pause(self._one_or_all(command)))

    def do_resume(self, command: Command) -> None:
        """`resume late`, or `resume`."""
        self._mutate(command, Resume(self._one_or_all(command)))

    def do_throttle(self, command: Command) -> None:
        """`throttle late rate=0`; without a rate the limit goes."""
        command.expect(2, "rate")
        rate = command.number("rate", 0) if "rate" in command.options else None
        self._mutate(command, Throttle(command.words[1], rate))

    def do_lanes(self, command: Command) -> None:
        """`lanes 4`: the lanes change behind the batch of the next barrier."""
        command.expect(2)
        self._mutate(command, Lanes(int(command.words[1])))

    def _one_or_all(self, command: Command) -> str | None:
        command.expect(min(len(command.words), 2))
        return command.words[1] if len(command.words) == 2 else None

    def _mutate(self, command: Command, mutation: Mutation) -> None:
        if self._mutation is not None:
            raise ScriptError(command.line, "a barrier carries one mutation")
        self._mutation = mutation
