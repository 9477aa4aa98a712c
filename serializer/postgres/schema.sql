-- Tables of Orderly's postgres engine. They are made in the first schema of the user's
-- search_path, when they are missing.
CREATE TABLE IF NOT EXISTS orderly_namespaces (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    last    bigint NOT NULL DEFAULT 0,             -- number of a ticket, and version of a change
    trimmed bigint NOT NULL DEFAULT 0,             -- tickets out up to this version were deleted
    epoch   bigint NOT NULL DEFAULT 0,             -- grows when history was lost
    history text NOT NULL,                         -- which server wrote it, and its timeline
    -- Only who may read this can notify others.
    channel text NOT NULL DEFAULT 'orderly_' || replace(gen_random_uuid()::text, '-', ''),
    longest bigint NOT NULL                        -- ttl of a session so far
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS orderly_sessions (      -- the leases of processes
    id        bigint PRIMARY KEY,                  -- below zero: stands for all that were lost
    namespace bigint NOT NULL,
    owner     text NOT NULL,
    ttl       bigint NOT NULL,                     -- in microseconds
    renewals  bigint NOT NULL DEFAULT 0,           -- while it moves, the process lives
    serial    bigint NOT NULL DEFAULT 0            -- of its last ticket
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS orderly_tickets (
    namespace bigint NOT NULL,
    number    bigint NOT NULL,
    version   bigint NOT NULL,                     -- of the last change
    session   bigint NOT NULL,
    serial    bigint NOT NULL,                     -- in the session
    record    json NOT NULL,                       -- what others and people want to know
    inside    boolean NOT NULL DEFAULT false,      -- said in paused queues, or when an eviction was obeyed
    evict     boolean NOT NULL DEFAULT false,      -- somebody asks its owner for that
    gone      boolean NOT NULL DEFAULT false,      -- out of the queue
    PRIMARY KEY (namespace, number)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX IF NOT EXISTS orderly_tickets_version ON orderly_tickets (namespace, version);

CREATE TABLE IF NOT EXISTS orderly_pauses (
    namespace bigint NOT NULL,
    name      bytea NOT NULL,
    version   bigint NOT NULL,
    until     timestamptz,                         -- NULL when it is over
    PRIMARY KEY (namespace, name)
);
