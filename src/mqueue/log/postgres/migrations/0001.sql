-- The tables and functions of a shard. Times are milliseconds since 1970, but for sessions and node numbers: these go
-- by the clock of this server alone.
--
-- Tables that are written at every call are only inserted into and read from their newest end, so that an old
-- transaction elsewhere slows nothing down; space comes back when a day is dropped. Offsets are not counted anywhere:
-- the next one follows from the newest frame, read under a lock.
--
-- Locks, always taken in this order, each kind sorted:
--   (bigint) virtual shard         shared: append, commit; alone: whoever changes its owner or drops a topic of it
--   (-1, virtual shard)            alone: whoever writes its journal
--   (topic, partition)             alone: append
-- and for themselves: (-2, hash of a namespace) to make topics, (-3, 0) to take a node number, (-4, 0) to make or drop
-- days, (-5, 0) to change this schema.
--
-- Errors: MQ001 moved, MQ002 flushed elsewhere, MQ003 fenced, MQ004 a key is taken, MQ005 no such topic.

create schema mqueue;

create table mqueue.meta (key text primary key, value jsonb not null);

create table mqueue.vshards (
  vshard int primary key,
  map_epoch bigint not null default 1,      -- where it lives: fences append
  owner uuid,
  owner_epoch bigint not null default 0,    -- who delivers from it: fences commit
  state text not null default 'active' check (state in ('active', 'incoming', 'moved')),
  moved_to text
) with (fillfactor = 50);

create table mqueue.sessions (
  owner uuid primary key,
  node int not null,
  address text not null,
  until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

create table mqueue.nodes (
  node_id int primary key,
  holder uuid not null,
  epoch bigint not null,
  until timestamptz not null
);

create table mqueue.topics (
  topic_id int generated always as identity primary key,    -- a name that is made again gets another one
  namespace text collate "C" not null,
  name text collate "C" not null,
  vshard int not null,
  settings bytea not null,
  first_settings bytea not null,
  made_at bigint not null,
  deleted_at bigint,
  hidden boolean not null
);
create unique index topics_name on mqueue.topics (namespace, name) where deleted_at is null;
create index topics_vshard on mqueue.topics (vshard) where deleted_at is null;

create table mqueue.frames (
  day date not null,
  topic_id int not null,
  part int not null,
  base bigint not null,
  count int not null,
  base_id bigint not null,
  at bigint not null,
  size int not null,
  head bytea not null,
  body bytea not null,
  primary key (topic_id, part, base, day)
) partition by range (day);
create index frames_id on mqueue.frames (base_id);
alter table mqueue.frames alter head set storage external, alter body set storage external;

create table mqueue.frames_kept (           -- what is kept below a floor
  topic_id int not null,
  part int not null,
  base bigint not null,
  count int not null,
  base_id bigint not null,
  at bigint not null,
  size int not null,
  head bytea not null,
  body bytea not null,
  primary key (topic_id, part, base)
);
create index frames_kept_id on mqueue.frames_kept (base_id);
alter table mqueue.frames_kept alter head set storage external, alter body set storage external;

create table mqueue.floors (
  topic_id int not null,
  part int not null,
  floor bigint not null default 0,          -- below it there is only what is kept
  next bigint not null default 0,           -- of what was dropped: offsets and times go on from here
  at bigint not null default 0,
  primary key (topic_id, part)
);

create table mqueue.late (                  -- frames that stand later in the order than their time says
  topic_id int not null,
  part int not null,
  base bigint not null,
  count int not null,
  at bigint not null,
  primary key (topic_id, part, base)
);

create table mqueue.journal (
  day date not null,
  vshard int not null,
  seq bigint not null,
  epoch bigint not null,
  at bigint not null,
  body bytea not null,
  primary key (vshard, seq, day)
) partition by range (day);
alter table mqueue.journal alter body set storage external;

create table mqueue.journal_index (         -- which rows of the journal speak of offsets [block * 4096, + 4096)
  day date not null,
  topic_id int not null,
  part int not null,
  block bigint not null,
  seq bigint not null
) partition by range (day);
create index journal_index_block on mqueue.journal_index (topic_id, part, block, seq);

create table mqueue.checkpoints (
  vshard int not null,
  seq bigint not null,
  at bigint not null,
  body bytea not null,
  primary key (vshard, seq)
);
alter table mqueue.checkpoints alter body set storage external;

create table mqueue.idempotency (
  topic_id int not null,
  key bytea not null,
  digest bytea not null,
  id bigint not null,
  part int not null,
  "offset" bigint not null,
  priority int not null,
  due bigint not null,
  made_at bigint not null,
  primary key (topic_id, key)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index idempotency_made_at on mqueue.idempotency (topic_id, made_at);

create table mqueue.flush_progress (        -- how far the log of a node was flushed: the key is the compare-and-set
  wal uuid not null,
  from_pos bigint not null,
  to_pos bigint not null,
  at timestamptz not null default clock_timestamp(),
  primary key (wal, from_pos)
);


create function mqueue.now_ms() returns bigint language sql volatile
return (extract(epoch from clock_timestamp()) * 1000)::bigint;

create function mqueue.day_of(p_ms bigint) returns date language sql immutable
return date '1970-01-01' + (p_ms / 86400000)::int;


-- Days.

create function mqueue.make_days(p_first date, p_last date) returns void language plpgsql as $$
declare
  d date;
  parent text;
  child text;
begin
  perform pg_advisory_xact_lock(-4, 0);
  for d in select generate_series(p_first, p_last, interval '1 day')::date loop
    foreach parent in array array['frames', 'journal', 'journal_index'] loop
      child := parent || '_' || to_char(d, 'YYYYMMDD');
      continue when to_regclass('mqueue.' || child) is not null;
      -- Attached, not created as a partition: that would stop everybody who reads or writes the parent.
      execute format('create table mqueue.%I (like mqueue.%I including defaults including storage) with ('
        'autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_analyze_scale_factor = 0.5)', child, parent);
      execute format('alter table mqueue.%I attach partition mqueue.%I for values from (%L) to (%L)',
        parent, child, d, d + 1);
    end loop;
  end loop;
end $$;

create function mqueue.drop_day(p_parent text, p_day date) returns void language plpgsql as $$
declare
  child text := p_parent || '_' || to_char(p_day, 'YYYYMMDD');
begin
  execute format('alter table mqueue.%I detach partition mqueue.%I', p_parent, child);
  execute format('drop table mqueue.%I', child);
end $$;


-- Frames.

-- The end of a partition and the time of its newest frame, as far as there are frames: all days are looked at.
create function mqueue.tip(p_topic int, p_part int, out next bigint, out at bigint) language plpgsql stable as $$
begin
  select f.base + f.count, f.at into next, at from mqueue.frames f
    where f.topic_id = p_topic and f.part = p_part order by f.base desc limit 1;
end $$;

-- Holds virtual shards where they are, and their owners, until this transaction ends.
create function mqueue.hold(p_vshard bigint[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(s.v) from (select distinct v from unnest(p_vshard) v order by v) s;
end $$;

-- Whether a frame was stored before, or some of it is still kept.
create function mqueue.known(p_base_id bigint, p_count bigint) returns boolean language plpgsql stable as $$
begin
  return exists (select from mqueue.frames where base_id = p_base_id)
    or exists (select from mqueue.frames_kept
      where base_id > p_base_id - 4096 and base_id < p_base_id + p_count and base_id + count > p_base_id);
end $$;

-- Puts frames at the ends of their partitions: of each its offset (-1: it is there already) and time. Null: this
-- stretch of the log was flushed before. All or nothing, and nothing is locked while the network is read.
--   p_wal, p_from, p_to   a stretch of a node's log, which must follow the one flushed before
--   p_once                leave out what is there already: frames that may be sent a second time
--   p_frames              of each frame: virtual shard, map epoch, topic, partition, count, first id, size; sorted by
--                         the first, the third and the fourth
--   p_bytes               of each frame: head, body
--   p_keys                idempotency keys: the number of the frame, from 1, the row in it, from 0, priority, due
--   p_digests             of each: key, payload
--   p_windows             topic, for how long claims on its keys hold; for ever where it is not named
-- Written for few statements and few parameters: of a small frame most of the time goes into these, not into what
-- they do.
create function mqueue.append(
  p_now bigint, p_wal uuid, p_from bigint, p_to bigint, p_once boolean, p_frames bigint[], p_bytes bytea[],
  p_keys bigint[] default '{}', p_digests bytea[] default '{}', p_windows bigint[] default '{}',
  out bases bigint[], out ats bigint[]) language plpgsql as $$
declare
  n int := cardinality(p_frames) / 7;
  v_now bigint := coalesce(p_now, mqueue.now_ms());
  v_vshard bigint;
  v_epoch bigint;
  v_topic int;
  v_part int;
  v_next bigint;
  v_at bigint;
  v_dropped_next bigint;
  v_dropped_at bigint;
begin
  for i in 1..n loop
    if v_vshard is distinct from p_frames[7 * i - 6] then
      v_vshard := p_frames[7 * i - 6];
      if pg_advisory_xact_lock_shared(v_vshard) is null then end if;
    end if;
  end loop;
  if p_wal is not null and not mqueue.flush(p_wal, p_from, p_to) then
    return;
  end if;
  bases := array_fill(-1::bigint, array[n]);
  ats := bases;
  for i in 1..n loop
    if v_topic is distinct from p_frames[7 * i - 4] or v_part <> p_frames[7 * i - 3]
        or v_vshard <> p_frames[7 * i - 6] or v_epoch <> p_frames[7 * i - 5] then
      v_vshard := p_frames[7 * i - 6];
      v_epoch := p_frames[7 * i - 5];
      v_topic := p_frames[7 * i - 4];
      v_part := p_frames[7 * i - 3];
      if pg_advisory_xact_lock(v_topic, v_part) is null then end if;
      -- Times never fall with the offset: only if there is no frame of this day or later older ones are looked at.
      select f.next, f.at, o.next, o.at into v_next, v_at, v_dropped_next, v_dropped_at
        from mqueue.vshards s
        join mqueue.topics t on t.topic_id = v_topic and t.vshard = s.vshard and t.deleted_at is null
        left join mqueue.floors o on o.topic_id = v_topic and o.part = v_part
        left join lateral (
          select f.base + f.count as next, f.at from mqueue.frames f
          where f.topic_id = v_topic and f.part = v_part and f.day >= mqueue.day_of(v_now)
          order by f.base desc limit 1
        ) f on true
        where s.vshard = v_vshard and s.map_epoch = v_epoch and s.state = 'active';
      if not found then
        perform from mqueue.vshards s where s.vshard = v_vshard and s.map_epoch = v_epoch and s.state = 'active';
        if found then
          raise exception 'topic % is not here', v_topic using errcode = 'MQ005';
        end if;
        raise exception 'virtual shard % is not active here at epoch %', v_vshard, v_epoch using errcode = 'MQ001';
      end if;
      if v_next is null then
        select f.next, f.at into v_next, v_at from mqueue.tip(v_topic, v_part) f;
      end if;
      v_next := greatest(v_next, v_dropped_next, 0);
      v_at := greatest(v_at, v_dropped_at, v_now);
    end if;
    ats[i] := v_at;
    continue when p_once and mqueue.known(p_frames[7 * i - 1], p_frames[7 * i - 2]);
    insert into mqueue.frames (day, topic_id, part, base, count, base_id, at, size, head, body)
      values (mqueue.day_of(v_at), v_topic, v_part, v_next, p_frames[7 * i - 2], p_frames[7 * i - 1], v_at,
        p_frames[7 * i], p_bytes[2 * i - 1], p_bytes[2 * i]);
    bases[i] := v_next;
    v_next := v_next + p_frames[7 * i - 2];
  end loop;
  if cardinality(p_keys) > 0 then
    perform mqueue.claim(p_frames, bases, ats, p_keys, p_digests, p_windows);
  end if;
end $$;

-- Claims the keys of frames that were appended just now. Sorted, so that no two wait for each other.
create function mqueue.claim(p_frames bigint[], p_base bigint[], p_at bigint[], p_keys bigint[], p_digests bytea[],
  p_windows bigint[]) returns void language plpgsql as $$
declare
  n int := cardinality(p_keys) / 4;
  v_made int;
begin
  insert into mqueue.idempotency as c (topic_id, key, digest, id, part, "offset", priority, due, made_at)
    select p_frames[7 * k.f - 4], p_digests[2 * k.i - 1], p_digests[2 * k.i], p_frames[7 * k.f - 1] + k.r,
      p_frames[7 * k.f - 3], p_base[k.f] + k.r, p_keys[4 * k.i - 1], p_keys[4 * k.i], p_at[k.f]
    from (select i, p_keys[4 * i - 3] as f, p_keys[4 * i - 2] as r from generate_series(1, n) i) k
    where p_base[k.f] >= 0 order by 1, 2
  on conflict (topic_id, key) do update set digest = excluded.digest, id = excluded.id, part = excluded.part,
    "offset" = excluded."offset", priority = excluded.priority, due = excluded.due, made_at = excluded.made_at
    where c.made_at <= excluded.made_at - (select p_windows[2 * w] from generate_series(1, cardinality(p_windows) / 2) w
      where p_windows[2 * w - 1] = excluded.topic_id);
  get diagnostics v_made = row_count;
  if v_made <> (select count(*) from generate_series(1, n) i where p_base[p_keys[4 * i - 3]] >= 0) then
    raise exception 'an idempotency key is taken' using errcode = 'MQ004';
  end if;
end $$;

-- Notes that a stretch of a log is flushed with this transaction; false: it was before. A second one from the same
-- place waits here for the first.
create function mqueue.flush(p_wal uuid, p_from bigint, p_to bigint) returns boolean language plpgsql as $$
declare
  v_done bigint;
begin
  for attempt in 1..2 loop
    select to_pos into v_done from mqueue.flush_progress where wal = p_wal order by from_pos desc limit 1;
    v_done := coalesce(v_done, 0);
    if v_done >= p_to then
      return false;
    end if;
    exit when v_done <> p_from;
    insert into mqueue.flush_progress (wal, from_pos, to_pos) values (p_wal, p_from, p_to) on conflict do nothing;
    if found then
      return true;
    end if;
  end loop;
  raise exception 'log % is flushed to %, not to %', p_wal, v_done, p_from using errcode = 'MQ002';
end $$;


-- The journal.

-- Where the journal of a virtual shard ends, and the day of its newest row. All days are looked at, and checkpoints:
-- newer days may have been dropped before older ones.
create function mqueue.last_row(p_vshard bigint, out seq bigint, out day date) language plpgsql stable as $$
begin
  select j.seq, j.day into seq, day from mqueue.journal j where j.vshard = p_vshard order by j.seq desc limit 1;
  seq := greatest(seq, (select max(c.seq) from mqueue.checkpoints c where c.vshard = p_vshard), 0);
end $$;

create function mqueue.check_owner(p_owner uuid, p_epoch bigint, p_vshard bigint) returns void language plpgsql as $$
begin
  perform mqueue.hold(array[p_vshard]);
  perform from mqueue.vshards
    where vshard = p_vshard and owner = p_owner and owner_epoch = p_epoch and state = 'active';
  if not found then
    raise exception 'virtual shard % is owned by another', p_vshard using errcode = 'MQ003';
  end if;
end $$;

-- Every change of what virtual shards know of their messages. Who is not the owner any more, or does not go on where
-- the journal ends, is refused with everything.
--   p_entries   of each: virtual shard, epoch, sequence, time; sorted by the first
--   p_blocks    blocks of offsets that an entry speaks of: the number of the entry, from 1, topic, partition, block
--   p_late      topic, partition, base, count, time in the order
create function mqueue.record(p_owner uuid, p_entries bigint[], p_body bytea[], p_blocks bigint[], p_late bigint[])
returns void language plpgsql as $$
declare
  n int := cardinality(p_body);
  v_vshard bigint;
  v_epoch bigint;
  v_seq bigint;
  v_point bigint;
  v_day date;
  v_days date[] := array_fill(null::date, array[n]);
begin
  for i in 1..n loop
    if v_vshard is distinct from p_entries[4 * i - 3] then
      v_vshard := p_entries[4 * i - 3];
      if pg_advisory_xact_lock_shared(v_vshard) is null then end if;
    end if;
  end loop;
  v_vshard := null;
  for i in 1..n loop
    if v_vshard is distinct from p_entries[4 * i - 3] then
      v_vshard := p_entries[4 * i - 3];
      v_epoch := p_entries[4 * i - 2];
      if pg_advisory_xact_lock(-1, v_vshard::int) is null then end if;
      -- Days never fall with the sequence: only if there is no row of this day or later older ones are looked at.
      select l.seq, l.day, c.seq into v_seq, v_day, v_point from mqueue.vshards s
        left join lateral (
          select c.seq from mqueue.checkpoints c where c.vshard = v_vshard order by c.seq desc limit 1
        ) c on true
        left join lateral (
          select j.seq, j.day from mqueue.journal j
          where j.vshard = v_vshard and j.day >= mqueue.day_of(p_entries[4 * i]) order by j.seq desc limit 1
        ) l on true
        where s.vshard = v_vshard and s.owner = p_owner and s.owner_epoch = v_epoch and s.state = 'active';
      if not found then
        raise exception 'virtual shard % is owned by another', v_vshard using errcode = 'MQ003';
      end if;
      if v_seq is null then
        select l.seq, l.day into v_seq, v_day from mqueue.last_row(v_vshard) l;
      end if;
      v_seq := greatest(v_seq, v_point);
    end if;
    v_seq := v_seq + 1;
    if v_seq <> p_entries[4 * i - 1] or v_epoch <> p_entries[4 * i - 2] then
      raise exception 'the journal of virtual shard % goes on at %, not at %', v_vshard, v_seq, p_entries[4 * i - 1]
        using errcode = 'MQ003';
    end if;
    v_day := greatest(v_day, mqueue.day_of(p_entries[4 * i]));
    v_days[i] := v_day;
    insert into mqueue.journal (day, vshard, seq, epoch, at, body)
      values (v_day, v_vshard, v_seq, v_epoch, p_entries[4 * i], p_body[i]);
  end loop;
  if cardinality(p_blocks) > 0 then
    insert into mqueue.journal_index (day, topic_id, part, block, seq)
      select v_days[p_blocks[4 * i - 3]], p_blocks[4 * i - 2], p_blocks[4 * i - 1], p_blocks[4 * i],
        p_entries[4 * p_blocks[4 * i - 3] - 1]
      from generate_series(1, cardinality(p_blocks) / 4) i;
  end if;
  if cardinality(p_late) > 0 then
    insert into mqueue.late (topic_id, part, base, count, at)
      select p_late[5 * i - 4], p_late[5 * i - 3], p_late[5 * i - 2], p_late[5 * i - 1], p_late[5 * i]
      from generate_series(1, cardinality(p_late) / 5) i
      on conflict (topic_id, part, base) do update set count = excluded.count, at = excluded.at;
  end if;
end $$;

-- Both at once: see record and append.
create function mqueue.commit(
  p_owner uuid, p_entries bigint[], p_body bytea[], p_blocks bigint[], p_late bigint[],
  p_now bigint, p_frames bigint[], p_bytes bytea[],
  p_keys bigint[] default '{}', p_digests bytea[] default '{}', p_windows bigint[] default '{}',
  out bases bigint[], out ats bigint[]) language plpgsql as $$
begin
  perform mqueue.hold(array(
    select p_entries[4 * i - 3] from generate_series(1, cardinality(p_entries) / 4) i
    union select p_frames[7 * i - 6] from generate_series(1, cardinality(p_frames) / 7) i));
  perform mqueue.record(p_owner, p_entries, p_body, p_blocks, p_late);
  select a.bases, a.ats into bases, ats
    from mqueue.append(p_now, null, 0, 0, false, p_frames, p_bytes, p_keys, p_digests, p_windows) a;
end $$;

-- The newest two are kept: should the last one not be readable, there is one before.
create function mqueue.point(p_owner uuid, p_epoch bigint, p_vshard bigint, p_seq bigint, p_at bigint, p_body bytea)
returns void language plpgsql as $$
begin
  perform mqueue.check_owner(p_owner, p_epoch, p_vshard);
  if p_seq > (select l.seq from mqueue.last_row(p_vshard) l) then
    raise exception 'the journal of virtual shard % ends before %', p_vshard, p_seq using errcode = 'MQ003';
  end if;
  insert into mqueue.checkpoints (vshard, seq, at, body) values (p_vshard, p_seq, p_at, p_body)
    on conflict (vshard, seq) do update set at = excluded.at, body = excluded.body;
  delete from mqueue.checkpoints where vshard = p_vshard and seq < (
    select seq from mqueue.checkpoints where vshard = p_vshard order by seq desc offset 1 limit 1);
end $$;


-- Owners.

create function mqueue.alive(p_owner uuid) returns boolean language sql stable
return exists (select from mqueue.sessions where owner = p_owner and until > clock_timestamp());

-- False: it came too late, and the session has ended.
create function mqueue.beat(p_owner uuid, p_node bigint, p_address text, p_ms bigint) returns boolean
language plpgsql as $$
begin
  insert into mqueue.sessions (owner, node, address, until)
    values (p_owner, p_node, p_address, clock_timestamp() + p_ms * interval '1 ms')
    on conflict (owner) do update set until = excluded.until, address = excluded.address
      where sessions.until > clock_timestamp();
  return found;
end $$;

-- Those that nobody alive owns, or p_owner already does, get a new epoch. Waits for statements of the owner before
-- that are running: each is one statement, so none can sleep here.
create function mqueue.own(p_owner uuid, p_vshard bigint[]) returns table (v int, e bigint) language plpgsql as $$
declare
  v_free int[];
begin
  select array_agg(s.vshard order by s.vshard) into v_free from mqueue.vshards s
    where s.vshard = any (p_vshard) and s.state = 'active' and (s.owner = p_owner or not mqueue.alive(s.owner));
  perform pg_advisory_xact_lock(f::bigint) from unnest(v_free) f;
  delete from mqueue.sessions where until < clock_timestamp() - interval '1 day';
  return query update mqueue.vshards s set owner = p_owner, owner_epoch = s.owner_epoch + 1
    where s.vshard = any (v_free) and s.state = 'active' and (s.owner = p_owner or not mqueue.alive(s.owner))
      and mqueue.alive(p_owner)
    returning s.vshard, s.owner_epoch;
end $$;

create function mqueue.disown(p_owner uuid, p_vshard bigint[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock(s.v) from (select distinct v from unnest(p_vshard) v order by v) s;
  update mqueue.vshards set owner = null where vshard = any (p_vshard) and owner = p_owner;
end $$;

-- The row stays for a while, as of a session that has ended: a beat that is still under way must not begin it again.
create function mqueue.leave_session(p_owner uuid) returns void language plpgsql as $$
begin
  perform mqueue.disown(p_owner, array(select vshard::bigint from mqueue.vshards where owner = p_owner));
  update mqueue.sessions set until = clock_timestamp() where owner = p_owner and until > clock_timestamp();
end $$;


-- Topics.

-- The one that is there, or a new one; no row: there are p_limit in its namespace already.
create function mqueue.make_topic(p_namespace text, p_name text, p_vshard bigint, p_settings bytea, p_now bigint,
  p_hidden boolean, p_limit bigint)
returns table (topic mqueue.topics, made boolean) language plpgsql as $$
begin
  perform mqueue.hold(array[p_vshard]);
  perform from mqueue.vshards where vshard = p_vshard and state = 'active';
  if not found then
    raise exception 'virtual shard % is not active here', p_vshard using errcode = 'MQ001';
  end if;
  for attempt in 1..2 loop
    return query select t, false from mqueue.topics t
      where t.namespace = p_namespace and t.name = p_name and t.deleted_at is null;
    if found then
      return;
    end if;
    perform pg_advisory_xact_lock(-2, hashtext(p_namespace));  -- and look again
  end loop;
  if p_limit <= (select count(*) from mqueue.topics t
      where t.namespace = p_namespace and t.deleted_at is null and not t.hidden) then
    return;
  end if;
  insert into mqueue.topics (namespace, name, vshard, settings, first_settings, made_at, hidden)
    values (p_namespace, p_name, p_vshard, p_settings, p_settings, coalesce(p_now, mqueue.now_ms()), p_hidden);
  return query select t, true from mqueue.topics t
    where t.namespace = p_namespace and t.name = p_name and t.deleted_at is null;
end $$;

create function mqueue.set_topic(p_owner uuid, p_epoch bigint, p_topic bigint, p_settings bytea) returns void
language plpgsql as $$
declare
  v_vshard bigint;
begin
  select vshard into v_vshard from mqueue.topics where topic_id = p_topic and deleted_at is null;
  if v_vshard is not null then
    perform mqueue.check_owner(p_owner, p_epoch, v_vshard);
    update mqueue.topics set settings = p_settings where topic_id = p_topic and deleted_at is null;
    if found then
      return;
    end if;
  end if;
  raise exception 'topic % is not here', p_topic using errcode = 'MQ005';
end $$;

-- Waits for appends that are running; those that come later are refused.
create function mqueue.drop_topic(p_owner uuid, p_epoch bigint, p_topic bigint, p_now bigint) returns void
language plpgsql as $$
declare
  v_vshard bigint;
begin
  select vshard into v_vshard from mqueue.topics where topic_id = p_topic and deleted_at is null;
  if v_vshard is not null then
    perform pg_advisory_xact_lock(v_vshard);
    perform mqueue.check_owner(p_owner, p_epoch, v_vshard);
    update mqueue.topics set deleted_at = coalesce(p_now, mqueue.now_ms())
      where topic_id = p_topic and deleted_at is null;
    if found then
      return;
    end if;
  end if;
  raise exception 'topic % is not here', p_topic using errcode = 'MQ005';
end $$;


-- Retention.

-- Raises the floors of a topic, one for each partition, and puts aside what is kept below them.
create function mqueue.trim(
  p_owner uuid, p_epoch bigint, p_topic bigint, p_floor bigint[],
  p_gone_part bigint[], p_gone_base bigint[],
  p_part bigint[], p_base bigint[], p_count bigint[], p_base_id bigint[], p_at bigint[], p_size bigint[],
  p_head bytea[], p_body bytea[])
returns void language plpgsql as $$
declare
  v_vshard bigint;
begin
  select vshard into v_vshard from mqueue.topics where topic_id = p_topic and deleted_at is null;
  if v_vshard is null then
    raise exception 'topic % is not here', p_topic using errcode = 'MQ005';
  end if;
  perform mqueue.check_owner(p_owner, p_epoch, v_vshard);
  delete from mqueue.frames_kept k using unnest(p_gone_part, p_gone_base) u(part, base)
    where k.topic_id = p_topic and k.part = u.part and k.base = u.base;
  insert into mqueue.frames_kept (topic_id, part, base, count, base_id, at, size, head, body)
    select p_topic, u.* from unnest(p_part, p_base, p_count, p_base_id, p_at, p_size, p_head, p_body) u
    on conflict (topic_id, part, base) do update set count = excluded.count, base_id = excluded.base_id,
      at = excluded.at, size = excluded.size, head = excluded.head, body = excluded.body;
  insert into mqueue.floors (topic_id, part, floor, next)
    select p_topic, u.i - 1, u.floor, u.floor from unnest(p_floor) with ordinality u(floor, i) where u.floor > 0
    on conflict (topic_id, part) do update set floor = excluded.floor, next = greatest(floors.next, excluded.next)
      where floors.floor < excluded.floor;
  delete from mqueue.late l using mqueue.floors f
    where l.topic_id = p_topic and f.topic_id = l.topic_id and f.part = l.part and l.base + l.count <= f.floor;
end $$;

-- Locks the table of a day against writers, for who would drop it; null: there is none. Nobody is to wait long for this:
-- better it is tried again.
create function mqueue.close_day(p_parent text, p_day date) returns regclass language plpgsql as $$
declare
  v_day regclass;
begin
  perform pg_advisory_xact_lock(-4, 0);
  v_day := to_regclass('mqueue.' || p_parent || '_' || to_char(p_day, 'YYYYMMDD'));
  if v_day is not null then
    perform set_config('lock_timeout', '500', true);
    execute format('lock table %s in share mode', v_day);
  end if;
  return v_day;
exception when undefined_table then  -- somebody dropped it while we waited to be let in
  return null;
end $$;

-- Drops the frames of a day; false: there is no such day, or something in it is needed. That is what lies above its
-- floor, of a topic that is there, and was not copied to frames_kept.
create function mqueue.retire(p_day date) returns boolean language plpgsql as $$
declare
  v_day regclass;
  v_ends text;
  v_needed boolean;
begin
  v_day := mqueue.close_day('frames', p_day);
  if v_day is null then
    return false;
  end if;
  -- The newest frame of each partition, by one look into the index for each: a day may have millions.
  v_ends := format('with recursive k as (
      (select topic_id, part from %1$s order by 1, 2 limit 1)
      union all
      select n.topic_id, n.part from k cross join lateral (
        select f.topic_id, f.part from %1$s f where (f.topic_id, f.part) > (k.topic_id, k.part) order by 1, 2 limit 1) n
    ), ends as (
      select k.topic_id, k.part, e.next, e.at, coalesce(o.floor, 0) as floor from k
      join mqueue.topics t on t.topic_id = k.topic_id and t.deleted_at is null
      left join mqueue.floors o on o.topic_id = k.topic_id and o.part = k.part
      cross join lateral (
        select f.base + f.count as next, f.at from %1$s f
        where f.topic_id = k.topic_id and f.part = k.part order by f.base desc limit 1) e
    ) ', v_day);
  execute v_ends || format('select exists (
      select from ends cross join lateral (
        select from %s f
        where f.topic_id = ends.topic_id and f.part = ends.part
          and f.base > ends.floor - 4096 and f.base + f.count > ends.floor
          and not exists (select from mqueue.frames_kept k
            where k.topic_id = f.topic_id and k.part = f.part and k.base = f.base and k.count = f.count)
        limit 1) f
      where ends.next > ends.floor)', v_day)
    into v_needed;
  if v_needed then
    return false;
  end if;
  execute v_ends || 'insert into mqueue.floors (topic_id, part, next, at) select topic_id, part, next, at from ends
    on conflict (topic_id, part) do update
      set next = greatest(floors.next, excluded.next), at = greatest(floors.at, excluded.at)';
  perform mqueue.drop_day('frames', p_day);
  return true;
end $$;

-- Drops the journal of a day; false: there is no such day, or not all of it is older than the checkpoints.
create function mqueue.retire_journal(p_day date) returns boolean language plpgsql as $$
declare
  v_day regclass;
  v_needed boolean;
begin
  v_day := mqueue.close_day('journal', p_day);
  if v_day is null then
    return false;
  end if;
  execute format('select exists (
      select from mqueue.vshards v cross join lateral (
        select j.seq from %s j where j.vshard = v.vshard order by j.seq desc limit 1) j
      where j.seq > coalesce((select min(c.seq) from mqueue.checkpoints c where c.vshard = v.vshard), 0))', v_day)
    into v_needed;
  if v_needed then
    return false;
  end if;
  perform mqueue.drop_day('journal', p_day);
  perform mqueue.drop_day('journal_index', p_day);
  return true;
end $$;

-- Removes what is left of topics that were deleted, besides their frames; of each so many keys and pieces at most, and
-- its name when nothing else is there. True: there is more to do.
create function mqueue.bury(p_limit bigint) returns boolean language plpgsql as $$
declare
  v_dead int;
  v_rows bigint;
  v_more boolean := false;
begin
  for v_dead in select topic_id from mqueue.topics where deleted_at is not null loop
    delete from mqueue.idempotency where topic_id = v_dead
      and key in (select key from mqueue.idempotency where topic_id = v_dead limit p_limit);
    get diagnostics v_rows = row_count;
    v_more := v_more or v_rows = p_limit;
    delete from mqueue.frames_kept where topic_id = v_dead
      and (part, base) in (select part, base from mqueue.frames_kept where topic_id = v_dead limit p_limit);
    get diagnostics v_rows = row_count;
    v_more := v_more or v_rows = p_limit;
    delete from mqueue.late where topic_id = v_dead;
    delete from mqueue.floors where topic_id = v_dead;
    delete from mqueue.topics where topic_id = v_dead
      and not exists (select from mqueue.frames where topic_id = v_dead)
      and not exists (select from mqueue.idempotency where topic_id = v_dead)
      and not exists (select from mqueue.frames_kept where topic_id = v_dead);
  end loop;
  return v_more;
end $$;


-- Node numbers, on the first shard only: those never used before others, then the one that ended longest ago.

create function mqueue.take_node(p_holder uuid, p_hours double precision, p_nodes bigint)
returns table (node int, e bigint) language plpgsql as $$
declare
  v_until timestamptz;
  v_node int;
begin
  perform pg_advisory_xact_lock(-3, 0);
  v_until := clock_timestamp() + p_hours * interval '1 hour';
  return query update mqueue.nodes n set until = v_until where n.holder = p_holder and n.until > clock_timestamp()
    returning n.node_id, n.epoch;
  if found then
    return;
  end if;
  select g into v_node from generate_series(1, p_nodes - 1) g
    left join mqueue.nodes n on n.node_id = g
    where n.node_id is null or n.until <= clock_timestamp() order by n.until nulls first, g limit 1;
  if v_node is not null then
    return query insert into mqueue.nodes as n (node_id, holder, epoch, until) values (v_node, p_holder, 1, v_until)
      on conflict (node_id) do update set holder = excluded.holder, epoch = n.epoch + 1, until = excluded.until
      returning n.node_id, n.epoch;
  end if;
end $$;


-- The place of this server among the shards, told at its first start: virtual shard v lives on shard v % p_shards.
-- Answers the place it has.
create function mqueue.assign(p_shard bigint, p_shards bigint, p_cluster uuid, p_vshards bigint) returns jsonb
language plpgsql as $$
begin
  insert into mqueue.meta (key, value) values
    ('place', jsonb_build_object('shard', p_shard, 'shards', p_shards, 'cluster', p_cluster)) on conflict do nothing;
  if found then
    insert into mqueue.vshards (vshard) select v from generate_series(0, p_vshards - 1) v where v % p_shards = p_shard;
  end if;
  return (select value from mqueue.meta where key = 'place');
end $$;
