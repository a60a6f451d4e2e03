"""The lines of a scenario whose table is read from its database (`table connector=postgres`)."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.position import Key, order_key
from schemas.records import Mutation
from tests.kit.database import Transaction
from tests.scenarios.database import ScriptedDatabase
from tests.scenarios.script import Command, ScriptError
from tests.scenarios.upstream import Writer
from tests.simulation.beside import BesideChangelog
from tests.simulation.connector import FromConnector
from tests.simulation.initial import MemorySource
from tests.simulation.world import Setting


class DatabaseWriter(Writer):
    """Carries out in the database what others write to their topic. What is committed comes there by `send`."""

    @property
    def database(self) -> ScriptedDatabase:
        assert isinstance(self.upstream, ScriptedDatabase)
        return self.upstream

    def setting(self) -> Setting:
        """Commit the open transactions, and read the rest as the last chunks."""
        self.database.settle()
        self.database.finish_reading()
        self._initial = MemorySource(self.database.begins, self.database.content)
        return super().setting()

    def _closing(self) -> Sequence[Mutation | None]:
        return None, *super()._closing()

    def _carry_out(self, command: Command) -> None:
        super()._carry_out(command)
        if self.database.has_begun:
            self.moments[command.line] = self.database.newest

    # before the first start --------------------------------------------------------------------------------

    def do_table(self, command: Command) -> None:
        """`table connector=postgres vnodes=2 partitions=1`: barriers stand beside the data.

        Events have no row before, and leave `v` out of an update that does not change it.
        """
        command.expect(1, "connector", "vnodes", "partitions")
        self._format, self._changelog = FromConnector(), BesideChangelog
        table = self._table(command, command.number("vnodes", 2))
        self._upstream = ScriptedDatabase(table, command.number("partitions", 1))

    def do_initial(self, command: Command) -> None:
        """`initial bounds=a3,a6 confirmed=no`: the service looks where the topic ends, and reads the table.

        With bounds there is a reader for each range of keys: up to a3, behind it up to a6, and behind that. What was
        committed before is sent, and the slot has confirmed it unless `confirmed=no`.
        """
        command.expect(1, "bounds", "confirmed")
        if self.database.has_begun:
            raise ScriptError(command.line, "the table is read already")
        names = command.options["bounds"].split(",") if "bounds" in command.options else []
        bounds = [(self._id_of(command, name),) for name in names]
        if bounds != sorted(set(bounds)):
            raise ScriptError(command.line, "bounds rise")
        self.database.divide(bounds)
        self.database.send()
        if command.options.get("confirmed", "yes") == "yes":
            self.database.confirm()
        self.database.begin()

    def do_barrier(self, command: Command) -> None:
        """Write a barrier, once the table has begun to be read."""
        self._require_begun(command, "the first barrier")
        super().do_barrier(command)

    def _require_begun(self, command: Command, what: str) -> None:
        if not self.database.has_begun:
            raise ScriptError(command.line, f"initial comes before {what}")

    # statements --------------------------------------------------------------------------------------------

    def do_delete(self, command: Command) -> None:
        """`delete a1 by=t1`."""
        command.expect(2, "by")
        transaction = self._transaction(command)
        self.database.change(self._key(command, transaction, present=True), None, transaction)
        self._end(command, transaction)

    def do_move(self, command: Command) -> None:
        """`move a1 b1 by=t1`: a change of key."""
        command.expect(3, "by")
        transaction = self._transaction(command)
        old = self._key(command, transaction, present=True)
        new = self._key(command, transaction, present=False, word=2)
        value = self.database.row_of(old, transaction)
        self.database.change(old, None, transaction)
        self.database.change(new, value, transaction, moves=False)
        self._end(command, transaction)

    def do_commit(self, command: Command) -> None:
        """`commit t1`."""
        command.expect(2)
        if not self.database.commit(command.words[1]):
            raise ScriptError(command.line, f"{command.words[1]} is not open")

    def _put(self, command: Command, *, present: bool) -> None:
        """`insert a1 x by=t1`: a statement of a transaction, which is open from its first one on until `commit t1`.

        Without `by` it is a transaction of its own.
        """
        command.expect(3, "by")
        transaction = self._transaction(command)
        key = self._key(command, transaction, present=present)
        self.database.change(key, command.words[2], transaction)
        self._end(command, transaction)

    def _transaction(self, command: Command) -> Transaction:
        return self.database.transaction(command.options.get("by"))

    def _end(self, command: Command, transaction: Transaction) -> None:
        if "by" not in command.options:
            self.database.end(transaction)

    def _key(self, command: Command, transaction: Transaction, *, present: bool, word: int = 1) -> int:
        name, id_ = command.words[word], self._named(command, word)
        if self.database.is_taken(id_, transaction):
            raise ScriptError(command.line, f"{name} is taken by a transaction that is open")
        if (self.database.row_of(id_, transaction) is not None) != present:
            raise ScriptError(command.line, f"{name} is {'absent' if present else 'there already'}")
        return id_

    def do_bad(self, command: Command) -> None:
        """Refused, as the topic's ends would be others than the slot knows."""
        raise ScriptError(command.line, "bad is not for a table that is read from its database")

    # the connector and the reader --------------------------------------------------------------------------

    def do_send(self, command: Command) -> None:
        """`send events=1`: the connector sends the next events, or all that is committed."""
        command.expect(1, "events")
        self.database.send(command.number("events", 1) if "events" in command.options else None)

    def do_again(self, command: Command) -> None:
        """`again`: the connector is started again; its next `send` goes on behind what the slot has confirmed."""
        command.expect(1)
        self.database.restart_connector()

    def do_confirm(self, command: Command) -> None:
        """`confirm`: the slot says that it has what was sent."""
        command.expect(1)
        self.database.confirm()

    def do_select(self, command: Command) -> None:
        """`select a3`: the rows behind the chunk before, up to a3, are read; without a key, all that are left.

        With several readers the chunk before is that of the range of a3. The service has the rows with `chunk a3`.
        """
        upto = self._upto(command)
        self._require_begun(command, "the first chunk")
        before = self.database.chunk_before(upto)
        if before is not None and before.finished is None:
            raise ScriptError(command.line, "a chunk is on its way")
        if before is not None and not _goes_on(before.upto, upto):
            raise ScriptError(command.line, "a chunk ends behind the one before it")
        self.database.select(upto)

    def do_chunk(self, command: Command) -> None:
        """`chunk a3`: the chunk that was selected has come to the service; without a `select` it is selected now."""
        upto = self._upto(command)
        self._require_begun(command, "the first chunk")
        chunk = self.database.chunk_before(upto)
        if chunk is None or chunk.finished is not None:
            self.do_select(command)
            chunk = self.database.chunks[-1]
        if chunk.upto != upto:
            raise ScriptError(command.line, "another chunk is on its way")
        self.database.finish(chunk)

    def _upto(self, command: Command) -> Key | None:
        command.expect(min(len(command.words), 2))
        return (self._named(command),) if len(command.words) == 2 else None


def _goes_on(before: Key | None, upto: Key | None) -> bool:
    return before is not None and (upto is None or order_key(before) < order_key(upto))


def writer_for(commands: Sequence[Command]) -> Writer:
    """The one that knows the lines of a scenario, by its first."""
    is_read = bool(commands) and commands[0].options.get("connector") == "postgres"
    return DatabaseWriter() if is_read else Writer()
