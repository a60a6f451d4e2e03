"""A simulation of the commit protocol: the service's own code, in a world where everything that can go wrong does.

Real: the order of effects, recovery and retries (`streaming.protocol`), journal, log, progress and their conditional
commits (`state`), the lane from `init_transactions` to its commit (`streaming.lane`), the pure
core, the snapshot reads, the encoders. They run as they are, behind the ports that they have anyway.

Modelled, below those ports:

    broker      transactions by id: epochs and fencing, records that lie there undecided, committed readers, markers
                that come late; requests and answers that are lost, requests that arrive later, timeouts
    state       Delta's conditional commits, a commit whose answer is lost, old versions; a disk that forgets what was
                not synced
    Spark       lanes in any order, tasks that run twice, one after the other or at once, jobs that fail while tasks of
                them go on
    processes   one or two instances; each may die, or stop and go on later, before any of its steps
    upstream    arrives bit by bit, with mutations and with invalid records
    database    a table of PostgreSQL and its connector: transactions side by side, snapshots, a slot; chunks of it are
                read at any moment, lost, or read once more
    clock       stands still until something lets it go on

The service stops before each effect or question to the world outside; what it does in between has none. So a
history is a list of choices: who goes on, who dies, what becomes of an effect. The same choices make the same history.

    seeds       choices drawn at random (`histories`)
    crashes     all of them, in one job: before each step, in recoveries too, any number of them (`crashes`); pairs of
                them while a table is read from its database (`from_database`)
    power       all failures of the service's host in one job: before each step, any part of what was not synced is lost
    restores    an older state, or none, in the place of the newest: each one of a job, at many later moments
    hand-overs  all of them: whenever a rival takes over, whenever the one before goes on (`handovers`)
    faults      all that can go wrong without a crash, one at a time, in one job (`test_single_faults`)
    canaries    the protocol with one thing broken each; the simulation has to find it (`canaries`)

The judge (`judge`) asks `verify` about every output, and holds journal, log and progress to what the outputs say.

Not modelled: what Kafka, Delta and Spark get wrong themselves, damaged bytes, several brokers, retention, full disks,
time that is measured, the barrier injector, and how a compaction is computed. Real kills of the real service are the
matter of tests/faults.
"""
