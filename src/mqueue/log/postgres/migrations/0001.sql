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
-- days. Errors: MQ001 moved, MQ002 flushed elsewhere, MQ003 fenced, MQ004 a key is taken, MQ005 no such topic.

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
);
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

-- The end of a partition and the time of its newest frame. Who asks in order to append holds its lock. Times never fall
-- with the offset: only if there is no frame of p_since or later all days are looked at.
create function mqueue.tip(p_topic int, p_part int, p_since date, out next bigint, out at bigint)
language plpgsql stable as $$
declare
  o record;
begin
  select f.base + f.count, f.at into next, at from mqueue.frames f
    where f.topic_id = p_topic and f.part = p_part and f.day >= p_since order by f.base desc limit 1;
  if next is null then
    select f.base + f.count, f.at into next, at from mqueue.frames f
      where f.topic_id = p_topic and f.part = p_part order by f.base desc limit 1;
  end if;
  select f.next, f.at into o from mqueue.floors f where f.topic_id = p_topic and f.part = p_part;
  next := greatest(next, o.next, 0);
  at := greatest(at, o.at, 0);
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
--   p_key_*               idempotency keys: the number of the frame, from 1, and the row in it, from 0
--   p_window_*            for how long claims on keys of a topic hold; for ever where none is given
create function mqueue.append(
  p_now bigint, p_wal uuid, p_from bigint, p_to bigint, p_once boolean,
  p_vshard bigint[], p_epoch bigint[], p_topic bigint[], p_part bigint[], p_count bigint[], p_base_id bigint[],
  p_size bigint[], p_head bytea[], p_body bytea[],
  p_key_frame bigint[], p_key_row bigint[], p_key bytea[], p_key_digest bytea[], p_key_priority bigint[],
  p_key_due bigint[], p_window_topic bigint[], p_window bigint[],
  out bases bigint[], out ats bigint[]) language plpgsql as $$
declare
  v_now bigint;
  v_bad record;
  v_made int;
  v_tip record;
  k record;
  i int;
begin
  perform mqueue.hold(p_vshard);
  select u.v, u.t, s.vshard is null as moved into v_bad from unnest(p_vshard, p_epoch, p_topic) u(v, e, t)
    left join mqueue.vshards s on s.vshard = u.v and s.map_epoch = u.e and s.state = 'active'
    left join mqueue.topics t on t.topic_id = u.t and t.vshard = u.v and t.deleted_at is null
    where s.vshard is null or t.topic_id is null limit 1;
  if v_bad.moved then
    raise exception 'virtual shard % is not active here at this epoch', v_bad.v using errcode = 'MQ001';
  elsif found then
    raise exception 'topic % is not here', v_bad.t using errcode = 'MQ005';
  end if;
  if p_wal is not null and not mqueue.flush(p_wal, p_from, p_to) then
    return;
  end if;
  v_now := coalesce(p_now, mqueue.now_ms());
  bases := array_fill(-1::bigint, array[cardinality(p_topic)]);
  ats := array_fill(v_now, array[cardinality(p_topic)]);
  for k in
    select u.t::int as topic, u.p::int as part, array_agg(u.i order by u.i) as rows
    from unnest(p_topic, p_part) with ordinality u(t, p, i) group by 1, 2 order by 1, 2
  loop
    perform pg_advisory_xact_lock(k.topic, k.part);
    select * into v_tip from mqueue.tip(k.topic, k.part, mqueue.day_of(v_now));
    v_tip.at := greatest(v_tip.at, v_now);
    foreach i in array k.rows loop
      ats[i] := v_tip.at;
      continue when p_once and mqueue.known(p_base_id[i], p_count[i]);
      -- One by one: all of them through unnest() would be copied once more, to disk if they are large.
      insert into mqueue.frames (day, topic_id, part, base, count, base_id, at, size, head, body)
        values (mqueue.day_of(v_tip.at), k.topic, k.part, v_tip.next, p_count[i], p_base_id[i], v_tip.at, p_size[i],
          p_head[i], p_body[i]);
      bases[i] := v_tip.next;
      v_tip.next := v_tip.next + p_count[i];
    end loop;
  end loop;
  if cardinality(p_key) > 0 then
    insert into mqueue.idempotency (topic_id, key, digest, id, part, "offset", priority, due, made_at)
      select p_topic[u.f], u.key, u.digest, p_base_id[u.f] + u.r, p_part[u.f], bases[u.f] + u.r, u.priority, u.due,
        ats[u.f]
      from unnest(p_key_frame, p_key_row, p_key, p_key_digest, p_key_priority, p_key_due)
        u(f, r, key, digest, priority, due)
      where bases[u.f] >= 0 order by 1, 2
    on conflict (topic_id, key) do update set digest = excluded.digest, id = excluded.id, part = excluded.part,
      "offset" = excluded."offset", priority = excluded.priority, due = excluded.due, made_at = excluded.made_at
      where idempotency.made_at
        <= excluded.made_at - p_window[array_position(p_window_topic, excluded.topic_id::bigint)];
    get diagnostics v_made = row_count;
    if v_made <> (select count(*) from unnest(p_key_frame) f where bases[f] >= 0) then
      raise exception 'an idempotency key is taken' using errcode = 'MQ004';
    end if;
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

-- The newest row of a virtual shard. Days never fall with the sequence: only if it has no row of p_since or later all
-- days are looked at, and then its checkpoints.
create function mqueue.last_row(p_vshard bigint, p_since date, out seq bigint, out day date)
language plpgsql stable as $$
begin
  select j.seq, j.day into seq, day from mqueue.journal j
    where j.vshard = p_vshard and j.day >= p_since order by j.seq desc limit 1;
  if seq is null then
    select j.seq, j.day into seq, day from mqueue.journal j where j.vshard = p_vshard order by j.seq desc limit 1;
  end if;
  if seq is null then
    select coalesce(max(c.seq), 0) into seq from mqueue.checkpoints c where c.vshard = p_vshard;
  end if;
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
--   p_block_row     blocks of offsets that an entry speaks of: the number of the entry, from 1
create function mqueue.record(
  p_owner uuid, p_vshard bigint[], p_epoch bigint[], p_seq bigint[], p_at bigint[], p_body bytea[],
  p_block_row bigint[], p_block_topic bigint[], p_block_part bigint[], p_block bigint[],
  p_late_topic bigint[], p_late_part bigint[], p_late_base bigint[], p_late_count bigint[], p_late_at bigint[])
returns void language plpgsql as $$
declare
  v_bad bigint;
  v_days date[];
begin
  perform mqueue.hold(p_vshard);
  perform pg_advisory_xact_lock(-1, s.v::int) from (select distinct v from unnest(p_vshard) v order by v) s;
  select min(r.v) filter (where not r.good), array_agg(r.day order by r.i) into v_bad, v_days from (
    select u.v, u.i, greatest(mqueue.day_of(u.at), l.day) as day,
      s.vshard is not null and u.seq = l.seq + row_number() over (partition by u.v order by u.i) as good
    from unnest(p_vshard, p_epoch, p_seq, p_at) with ordinality u(v, e, seq, at, i)
    left join mqueue.vshards s on s.vshard = u.v and s.owner = p_owner and s.owner_epoch = u.e and s.state = 'active'
    left join lateral mqueue.last_row(u.v, mqueue.day_of(u.at) - 1) l on true
  ) r;
  if v_bad is not null then
    raise exception 'virtual shard % is owned by another, or its journal goes on elsewhere', v_bad
      using errcode = 'MQ003';
  end if;
  insert into mqueue.journal (day, vshard, seq, epoch, at, body)
    select u.day, u.v, u.seq, u.epoch, u.at, u.body
    from unnest(v_days, p_vshard, p_seq, p_epoch, p_at, p_body) u(day, v, seq, epoch, at, body);
  if cardinality(p_block) > 0 then
    insert into mqueue.journal_index (day, topic_id, part, block, seq)
      select v_days[u.i], u.topic, u.part, u.block, p_seq[u.i]
      from unnest(p_block_row, p_block_topic, p_block_part, p_block) u(i, topic, part, block);
  end if;
  if cardinality(p_late_base) > 0 then
    insert into mqueue.late (topic_id, part, base, count, at)
      select * from unnest(p_late_topic, p_late_part, p_late_base, p_late_count, p_late_at)
      on conflict (topic_id, part, base) do update set count = excluded.count, at = excluded.at;
  end if;
end $$;

-- Both at once: see record and append.
create function mqueue.commit(
  p_owner uuid, p_entry_vshard bigint[], p_entry_epoch bigint[], p_entry_seq bigint[], p_entry_at bigint[],
  p_entry_body bytea[], p_block_row bigint[], p_block_topic bigint[], p_block_part bigint[], p_block bigint[],
  p_late_topic bigint[], p_late_part bigint[], p_late_base bigint[], p_late_count bigint[], p_late_at bigint[],
  p_now bigint,
  p_vshard bigint[], p_epoch bigint[], p_topic bigint[], p_part bigint[], p_count bigint[], p_base_id bigint[],
  p_size bigint[], p_head bytea[], p_body bytea[],
  p_key_frame bigint[], p_key_row bigint[], p_key bytea[], p_key_digest bytea[], p_key_priority bigint[],
  p_key_due bigint[], p_window_topic bigint[], p_window bigint[],
  out bases bigint[], out ats bigint[]) language plpgsql as $$
begin
  perform mqueue.hold(p_entry_vshard || p_vshard);
  perform mqueue.record(p_owner, p_entry_vshard, p_entry_epoch, p_entry_seq, p_entry_at, p_entry_body,
    p_block_row, p_block_topic, p_block_part, p_block,
    p_late_topic, p_late_part, p_late_base, p_late_count, p_late_at);
  select a.bases, a.ats into bases, ats from mqueue.append(p_now, null, 0, 0, false,
    p_vshard, p_epoch, p_topic, p_part, p_count, p_base_id, p_size, p_head, p_body,
    p_key_frame, p_key_row, p_key, p_key_digest, p_key_priority, p_key_due, p_window_topic, p_window) a;
end $$;

-- The newest two are kept: should the last one not be readable, there is one before.
create function mqueue.point(p_owner uuid, p_epoch bigint, p_vshard bigint, p_seq bigint, p_at bigint, p_body bytea)
returns void language plpgsql as $$
begin
  perform mqueue.check_owner(p_owner, p_epoch, p_vshard);
  if p_seq > (select l.seq from mqueue.last_row(p_vshard, mqueue.day_of(p_at) - 1) l) then
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

-- Drops the frames of a day; false: there is no such day, or something in it is needed. That is what lies above its
-- floor, of a topic that is there, and was not copied to frames_kept.
create function mqueue.retire(p_day date) returns boolean language plpgsql as $$
declare
  v_day regclass;
  v_needed boolean;
begin
  perform pg_advisory_xact_lock(-4, 0);
  v_day := to_regclass('mqueue.frames_' || to_char(p_day, 'YYYYMMDD'));
  if v_day is null then
    return false;
  end if;
  -- Nobody is to wait long for this: better it is tried again. First only the day is locked, against writers.
  perform set_config('lock_timeout', '500', true);
  execute format('lock table %s in share mode', v_day);
  execute format('select exists (
      select from %s f
      join mqueue.topics t on t.topic_id = f.topic_id and t.deleted_at is null
      left join mqueue.floors o on o.topic_id = f.topic_id and o.part = f.part
      where f.base + f.count > coalesce(o.floor, 0) and not exists (
        select from mqueue.frames_kept k
        where k.topic_id = f.topic_id and k.part = f.part and k.base = f.base and k.count = f.count))', v_day)
    into v_needed;
  if v_needed then
    return false;
  end if;
  execute format('insert into mqueue.floors (topic_id, part, next, at)
      select f.topic_id, f.part, max(f.base + f.count), max(f.at) from %s f
      join mqueue.topics t on t.topic_id = f.topic_id and t.deleted_at is null group by 1, 2
      on conflict (topic_id, part) do update
        set next = greatest(floors.next, excluded.next), at = greatest(floors.at, excluded.at)', v_day);
  perform mqueue.drop_day('frames', p_day);
  return true;
end $$;

-- Drops the journal of a day; false: there is no such day, or not all of it is older than the checkpoints.
create function mqueue.retire_journal(p_day date) returns boolean language plpgsql as $$
declare
  v_day regclass;
  v_needed boolean;
begin
  perform pg_advisory_xact_lock(-4, 0);
  v_day := to_regclass('mqueue.journal_' || to_char(p_day, 'YYYYMMDD'));
  if v_day is null then
    return false;
  end if;
  perform set_config('lock_timeout', '500', true);
  execute format('lock table %s in share mode', v_day);
  execute format('select exists (
      select from (select vshard, max(seq) as seq from %s group by 1) j
      where j.seq > coalesce((select min(c.seq) from mqueue.checkpoints c where c.vshard = j.vshard), 0))', v_day)
    into v_needed;
  if v_needed then
    return false;
  end if;
  perform mqueue.drop_day('journal', p_day);
  perform mqueue.drop_day('journal_index', p_day);
  return true;
end $$;

-- What is left of topics that were deleted, besides their frames; and of their names when these are gone too.
create function mqueue.bury() returns void language plpgsql as $$
declare
  v_dead int[] := array(select topic_id from mqueue.topics where deleted_at is not null);
begin
  delete from mqueue.idempotency where topic_id = any (v_dead);
  delete from mqueue.frames_kept where topic_id = any (v_dead);
  delete from mqueue.late where topic_id = any (v_dead);
  delete from mqueue.floors where topic_id = any (v_dead);
  delete from mqueue.topics t where t.topic_id = any (v_dead)
    and not exists (select from mqueue.frames f where f.topic_id = t.topic_id);
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
