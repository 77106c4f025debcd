-- Virtual shards move from one server to another, and servers join. Older nodes do their work as long as nothing moves.
-- nodes: 6
--
-- A move, each step by a statement of its own:
--   target  expect     its row is `incoming`: frames, journal, keys are copied, while the source goes on
--   source  leave      its row is `moved`: nothing more is appended or committed here; what came last is copied
--   target  activate   its row is `active`, with the epochs that `leave` gave
--   source  release    what lies here still is free to go (`remains`), and goes by `clear`
-- The row of the source is the authority until `leave` commits; from then on the highest map epoch is.
--
-- Locks besides those of 0001: (-7, 0) of a session: whoever moves something away from this server.
-- Errors: MQ009 the number of a topic is taken.

alter table mqueue.vshards add moves_from int;                 -- incoming: the place of the server that it comes from
alter table mqueue.vshards add remains text not null default 'none'
  check (remains in ('none', 'needed', 'free'));               -- moved: what lies here still; `needed` until it is active
create index topics_of_vshard on mqueue.topics (vshard);


-- Numbers of topics are in frames and journals, so they have to be unique over all servers: each server has a block of
-- 2^24 of its own, by its place. When it is used up it begins again, with numbers of which nothing is left.

create function mqueue.allot_topics(p_place bigint) returns void language plpgsql as $$
declare
  v_first bigint := (p_place % 128) * 16777216 + 1;
  v_last bigint := (p_place % 128) * 16777216 + 16777215;
  v_next bigint := (select last_value + is_called::int from mqueue.topics_topic_id_seq);
begin
  if v_next not between v_first and v_last then
    v_next := v_first;
  end if;
  execute format('alter sequence mqueue.topics_topic_id_seq minvalue %s maxvalue %s start %s restart %s cycle',
    v_first, v_last, v_first, v_next);
end $$;

select mqueue.allot_topics((value ->> 'shard')::bigint) from mqueue.meta where key = 'place';

create function mqueue.next_topic() returns int language plpgsql as $$
declare
  v_topic int;
begin
  loop
    v_topic := nextval('mqueue.topics_topic_id_seq');
    exit when not exists (select from mqueue.topics where topic_id = v_topic)
      and not exists (select from mqueue.frames where topic_id = v_topic)
      and not exists (select from mqueue.frames_kept where topic_id = v_topic);
  end loop;
  return v_topic;
end $$;

-- The one that is there, or a new one; no row: there are p_limit in its namespace already.
create or replace function mqueue.make_topic(p_namespace text, p_name text, p_vshard bigint, p_settings bytea,
  p_now bigint, p_hidden boolean, p_limit bigint)
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
  insert into mqueue.topics (topic_id, namespace, name, vshard, settings, first_settings, made_at, hidden)
    overriding system value values (mqueue.next_topic(), p_namespace, p_name, p_vshard, p_settings, p_settings,
      coalesce(p_now, mqueue.now_ms()), p_hidden);
  return query select t, true from mqueue.topics t
    where t.namespace = p_namespace and t.name = p_name and t.deleted_at is null;
end $$;


-- Servers.

create or replace function mqueue.assign(p_shard bigint, p_shards bigint, p_cluster uuid, p_vshards bigint)
returns jsonb language plpgsql as $$
begin
  insert into mqueue.meta (key, value) values
    ('place', jsonb_build_object('shard', p_shard, 'shards', p_shards, 'cluster', p_cluster)) on conflict do nothing;
  if found then
    insert into mqueue.vshards (vshard) select v from generate_series(0, p_vshards - 1) v where v % p_shards = p_shard;
    perform mqueue.allot_topics(p_shard);
  end if;
  return (select value from mqueue.meta where key = 'place');
end $$;

-- A server that joins a cluster gets a place and no virtual shards. Answers the place it has.
create function mqueue.join_cluster(p_shard bigint, p_cluster uuid) returns jsonb language plpgsql as $$
begin
  insert into mqueue.meta (key, value) values
    ('place', jsonb_build_object('shard', p_shard, 'shards', p_shard + 1, 'cluster', p_cluster)) on conflict do nothing;
  if found then
    perform mqueue.allot_topics(p_shard);
  end if;
  return (select value from mqueue.meta where key = 'place');
end $$;

-- How many servers there are by now; each was told how many there were when it got its place.
create function mqueue.grow(p_servers bigint) returns void language plpgsql as $$
begin
  insert into mqueue.meta (key, value) values ('servers', to_jsonb(p_servers)) on conflict (key) do update
    set value = to_jsonb(greatest(p_servers, (mqueue.meta.value #>> '{}')::bigint));
end $$;


-- Transactions lie with the virtual shard that their names lead to: so they move with it, and nobody chooses a place for
-- one where it does not live any more.

create function mqueue.vshard_of(p_namespace text, p_name text) returns int language plpgsql immutable strict as $$
declare
  v_bytes bytea := convert_to(p_namespace || ':' || case when length(p_name) > 4 and right(p_name, 4) = '.dlq'
    then left(p_name, -4) else p_name end, 'UTF8');
  v_hash bigint := 2166136261;
begin
  for i in 0..length(v_bytes) - 1 loop
    v_hash := ((v_hash # get_byte(v_bytes, i)) * 16777619) & 4294967295;
  end loop;
  return v_hash % 1024;
end $$;
create index transactions_vshard on mqueue.transactions (mqueue.vshard_of(namespace, name));

create function mqueue.settle_home(p_namespace text, p_name text, p_vshard bigint, p_now bigint) returns int
language plpgsql as $$
declare
  v_registry bigint := mqueue.vshard_of(p_namespace, p_name);
begin
  perform mqueue.hold(array[v_registry]);
  perform from mqueue.vshards where vshard = v_registry and state = 'active';
  if not found then
    raise exception 'virtual shard % is not active here', v_registry using errcode = 'MQ001';
  end if;
  insert into mqueue.transactions (namespace, name, vshard, at) values (p_namespace, p_name, p_vshard, p_now)
    on conflict do nothing;
  return (select vshard from mqueue.transactions where namespace = p_namespace and name = p_name);
end $$;


-- At the source.

create function mqueue.is_empty(p_vshard bigint) returns boolean language sql stable
return not exists (select from mqueue.topics where vshard = p_vshard and deleted_at is null)
  and not exists (select from mqueue.journal where vshard = p_vshard)
  and not exists (select from mqueue.checkpoints where vshard = p_vshard)
  and not exists (select from mqueue.transactions where mqueue.vshard_of(namespace, name) = p_vshard);

-- Waits for the statements that are running; when it was asked for that. What is appended later has that time or a later
-- one.
create function mqueue.barrier(p_vshard bigint) returns bigint language plpgsql as $$
declare
  v_now bigint := mqueue.now_ms();
begin
  perform pg_advisory_xact_lock(p_vshard);
  return v_now;
end $$;

-- From now on nothing is appended or committed here: of each its epochs. Waits for statements that are running.
--   p_empty   only those that have nothing
create function mqueue.leave(p_vshard bigint[], p_to bigint, p_empty boolean)
returns table (v int, map bigint, own bigint) language plpgsql as $$
begin
  perform pg_advisory_xact_lock(s.v) from (select distinct u as v from unnest(p_vshard) u order by u) s;
  return query update mqueue.vshards s
    set state = 'moved', moved_to = p_to::text, remains = 'needed', map_epoch = s.map_epoch + 1, owner = null,
      owner_epoch = s.owner_epoch + 1
    where s.vshard = any (p_vshard) and s.state = 'active' and (not p_empty or mqueue.is_empty(s.vshard))
    returning s.vshard, s.map_epoch, s.owner_epoch;
end $$;

-- Their new place has all that was here.
create function mqueue.release(p_vshard bigint[]) returns void language sql
begin atomic
  update mqueue.vshards set remains = 'free' where vshard = any (p_vshard) and state = 'moved' and remains = 'needed';
end;

-- Removes what is free to go, so many rows of each kind at most. True: there is more to do.
create function mqueue.clear(p_vshard bigint, p_limit bigint) returns boolean language plpgsql as $$
declare
  v_topics int[];
  v_rows bigint;
  v_more boolean := false;
begin
  perform pg_advisory_xact_lock(p_vshard);
  perform from mqueue.vshards where vshard = p_vshard and state = 'moved' and remains = 'free';
  if not found then
    return false;
  end if;
  update mqueue.topics set deleted_at = mqueue.now_ms() where vshard = p_vshard and deleted_at is null;
  select coalesce(array_agg(t.topic_id), '{}') into v_topics
    from (select topic_id from mqueue.topics where vshard = p_vshard limit 1000) t;
  delete from mqueue.checkpoints where vshard = p_vshard;
  delete from mqueue.transactions where mqueue.vshard_of(namespace, name) = p_vshard;
  delete from mqueue.floors where topic_id = any (v_topics);
  delete from mqueue.late where topic_id = any (v_topics);
  delete from mqueue.journal j using (
      select day, seq from mqueue.journal where vshard = p_vshard order by seq limit p_limit) d
    where j.vshard = p_vshard and j.seq = d.seq and j.day = d.day;
  get diagnostics v_rows = row_count;
  v_more := v_more or v_rows = p_limit;
  delete from mqueue.idempotency i using (
      select topic_id, key from mqueue.idempotency where topic_id = any (v_topics) limit p_limit) d
    where i.topic_id = d.topic_id and i.key = d.key;
  get diagnostics v_rows = row_count;
  v_more := v_more or v_rows = p_limit;
  delete from mqueue.frames_kept k using (
      select topic_id, part, base from mqueue.frames_kept where topic_id = any (v_topics) limit p_limit) d
    where k.topic_id = d.topic_id and k.part = d.part and k.base = d.base;
  get diagnostics v_rows = row_count;
  v_more := v_more or v_rows = p_limit;
  delete from mqueue.frames f using (
      select topic_id, part, base, day from mqueue.frames where topic_id = any (v_topics) limit p_limit) d
    where f.topic_id = d.topic_id and f.part = d.part and f.base = d.base and f.day = d.day;
  get diagnostics v_rows = row_count;
  v_more := v_more or v_rows = p_limit;
  delete from mqueue.journal_index i using (
      select day, topic_id, part, block, seq from mqueue.journal_index where topic_id = any (v_topics) limit p_limit) d
    where i.topic_id = d.topic_id and i.part = d.part and i.block = d.block and i.seq = d.seq and i.day = d.day;
  get diagnostics v_rows = row_count;
  v_more := v_more or v_rows >= p_limit;
  if not v_more then
    delete from mqueue.topics where topic_id = any (v_topics);
    v_more := exists (select from mqueue.topics where vshard = p_vshard);
  end if;
  if not v_more then
    update mqueue.vshards set remains = 'none' where vshard = p_vshard;
  end if;
  return v_more;
end $$;


-- At the target.

-- Which of them are incoming now; those that live here, or come from elsewhere, or of which something is left, are not.
create function mqueue.expect(p_vshard bigint[], p_from bigint) returns setof int language plpgsql as $$
begin
  perform pg_advisory_xact_lock(s.v) from (select distinct u as v from unnest(p_vshard) u order by u) s;
  return query insert into mqueue.vshards as s (vshard, map_epoch, state, moves_from)
    select u, 0, 'incoming', p_from from unnest(p_vshard) u
    on conflict (vshard) do update set state = 'incoming', moves_from = excluded.moves_from, moved_to = null
      where s.state = 'moved' and s.remains = 'none' or s.state = 'incoming' and s.moves_from = p_from
    returning s.vshard;
end $$;

-- It is not to come after all: what was copied is free to go.
create function mqueue.refuse(p_vshard bigint[]) returns setof int language plpgsql as $$
begin
  perform pg_advisory_xact_lock(s.v) from (select distinct u as v from unnest(p_vshard) u order by u) s;
  return query update mqueue.vshards s set state = 'moved', moved_to = s.moves_from::text, remains = 'free'
    where s.vshard = any (p_vshard) and s.state = 'incoming' returning s.vshard;
end $$;

create function mqueue.check_incoming(p_vshard bigint) returns void language plpgsql as $$
begin
  perform mqueue.hold(array[p_vshard]);
  perform from mqueue.vshards where vshard = p_vshard and state = 'incoming';
  if not found then
    raise exception 'virtual shard % is not incoming here', p_vshard using errcode = 'MQ001';
  end if;
end $$;

-- They live here from now on, with the epochs that `leave` gave: which of them were incoming.
--   p_rows   of each: virtual shard, map epoch, owner epoch
create function mqueue.activate(p_rows bigint[]) returns setof int language plpgsql as $$
begin
  perform pg_advisory_xact_lock(s.v) from (
    select p_rows[3 * i - 2] as v from generate_series(1, cardinality(p_rows) / 3) i order by 1) s;
  return query update mqueue.vshards s
    set state = 'active', map_epoch = u.map, owner_epoch = greatest(s.owner_epoch, u.own), owner = null,
      moves_from = null, moved_to = null, remains = 'none'
    from (select p_rows[3 * i - 2] as v, p_rows[3 * i - 1] as map, p_rows[3 * i] as own
      from generate_series(1, cardinality(p_rows) / 3) i) u
    where s.vshard = u.v and s.state = 'incoming' and s.map_epoch < u.map returning s.vshard;
end $$;

-- The topics of a virtual shard as they are at the source; those that are not among them any more are deleted.
--   p_numbers   of each: topic, made_at, 1 if it is hidden, version
--   p_names     of each: namespace, name;   p_settings   of each: settings, first settings
create function mqueue.take_topics(p_vshard bigint, p_numbers bigint[], p_names text[], p_settings bytea[])
returns void language plpgsql as $$
declare
  n int := cardinality(p_numbers) / 4;
  v_taken int;
begin
  perform mqueue.check_incoming(p_vshard);
  select t.topic_id into v_taken from mqueue.topics t
    where t.topic_id in (select p_numbers[4 * i - 3] from generate_series(1, n) i) and t.vshard <> p_vshard limit 1;
  if found then
    raise exception 'topic % is another here', v_taken using errcode = 'MQ009';
  end if;
  update mqueue.topics set deleted_at = mqueue.now_ms() where vshard = p_vshard and deleted_at is null
    and topic_id not in (select p_numbers[4 * i - 3] from generate_series(1, n) i);
  insert into mqueue.topics as t
      (topic_id, namespace, name, vshard, settings, first_settings, made_at, hidden, version)
    overriding system value
    select p_numbers[4 * i - 3], p_names[2 * i - 1], p_names[2 * i], p_vshard, p_settings[2 * i - 1],
      p_settings[2 * i], p_numbers[4 * i - 2], p_numbers[4 * i - 1] = 1, p_numbers[4 * i]
    from generate_series(1, n) i
    on conflict (topic_id) do update set settings = excluded.settings, version = excluded.version
      where t.version <= excluded.version;
end $$;

--   p_numbers   of each frame: topic, partition, base, count, first id, time, size;   p_bytes   of each: head, body
--   p_kept      they are kept below a floor, instead of what was kept there
create function mqueue.take_frames(p_vshard bigint, p_numbers bigint[], p_bytes bytea[], p_kept boolean) returns void
language plpgsql as $$
declare
  n int := cardinality(p_numbers) / 7;
begin
  perform mqueue.check_incoming(p_vshard);
  if p_kept then
    insert into mqueue.frames_kept as k (topic_id, part, base, count, base_id, at, size, head, body)
      select p_numbers[7 * i - 6], p_numbers[7 * i - 5], p_numbers[7 * i - 4], p_numbers[7 * i - 3],
        p_numbers[7 * i - 2], p_numbers[7 * i - 1], p_numbers[7 * i], p_bytes[2 * i - 1], p_bytes[2 * i]
      from generate_series(1, n) i
      on conflict (topic_id, part, base) do update set count = excluded.count, base_id = excluded.base_id,
        at = excluded.at, size = excluded.size, head = excluded.head, body = excluded.body;
  else
    insert into mqueue.frames (day, topic_id, part, base, count, base_id, at, size, head, body)
      select mqueue.day_of(p_numbers[7 * i - 1]), p_numbers[7 * i - 6], p_numbers[7 * i - 5], p_numbers[7 * i - 4],
        p_numbers[7 * i - 3], p_numbers[7 * i - 2], p_numbers[7 * i - 1], p_numbers[7 * i], p_bytes[2 * i - 1],
        p_bytes[2 * i]
      from generate_series(1, n) i on conflict do nothing;
  end if;
end $$;

--   p_entries   of each row: sequence, epoch, time, day;   p_blocks   the number of the row, topic, partition, block
create function mqueue.take_journal(p_vshard bigint, p_entries bigint[], p_body bytea[], p_blocks bigint[])
returns void language plpgsql as $$
begin
  perform mqueue.check_incoming(p_vshard);
  perform pg_advisory_xact_lock(-1, p_vshard::int);
  insert into mqueue.journal (day, vshard, seq, epoch, at, body)
    select date '1970-01-01' + p_entries[4 * i]::int, p_vshard, p_entries[4 * i - 3], p_entries[4 * i - 2],
      p_entries[4 * i - 1], p_body[i]
    from generate_series(1, cardinality(p_body)) i on conflict do nothing;
  insert into mqueue.journal_index (day, topic_id, part, block, seq)
    select date '1970-01-01' + p_entries[4 * p_blocks[4 * i - 3]]::int, p_blocks[4 * i - 2], p_blocks[4 * i - 1],
      p_blocks[4 * i], p_entries[4 * p_blocks[4 * i - 3] - 3]
    from generate_series(1, cardinality(p_blocks) / 4) i;
end $$;

-- A checkpoint; those that the source has not any more go.   p_there   the sequences of those that it has
create function mqueue.take_point(p_vshard bigint, p_seq bigint, p_at bigint, p_body bytea, p_there bigint[])
returns void language plpgsql as $$
begin
  perform mqueue.check_incoming(p_vshard);
  insert into mqueue.checkpoints (vshard, seq, at, body) values (p_vshard, p_seq, p_at, p_body)
    on conflict (vshard, seq) do update set at = excluded.at, body = excluded.body;
  delete from mqueue.checkpoints where vshard = p_vshard and seq <> all (p_there) and seq < p_seq;
end $$;

--   p_numbers   of each: topic, id, partition, offset, priority, due, made_at;   p_digests   of each: key, payload
create function mqueue.take_keys(p_vshard bigint, p_numbers bigint[], p_digests bytea[]) returns void
language plpgsql as $$
begin
  perform mqueue.check_incoming(p_vshard);
  insert into mqueue.idempotency as c (topic_id, key, digest, id, part, "offset", priority, due, made_at)
    select p_numbers[7 * i - 6], p_digests[2 * i - 1], p_digests[2 * i], p_numbers[7 * i - 5], p_numbers[7 * i - 4],
      p_numbers[7 * i - 3], p_numbers[7 * i - 2], p_numbers[7 * i - 1], p_numbers[7 * i]
    from generate_series(1, cardinality(p_numbers) / 7) i
    on conflict (topic_id, key) do update set digest = excluded.digest, id = excluded.id, part = excluded.part,
      "offset" = excluded."offset", priority = excluded.priority, due = excluded.due, made_at = excluded.made_at
      where c.made_at <= excluded.made_at;
end $$;

-- What is kept below floors is what the source keeps; floors and what came late are as there.
--   p_topics   of the virtual shard          p_kept   topic, partition, base of each that is kept
--   p_floors   topic, partition, floor, next, time   p_late   topic, partition, base, count, time
create function mqueue.take_floors(p_vshard bigint, p_topics bigint[], p_kept bigint[], p_floors bigint[],
  p_late bigint[]) returns void language plpgsql as $$
begin
  perform mqueue.check_incoming(p_vshard);
  delete from mqueue.frames_kept k where k.topic_id = any (p_topics) and not exists (
    select from generate_series(1, cardinality(p_kept) / 3) i where p_kept[3 * i - 2] = k.topic_id
      and p_kept[3 * i - 1] = k.part and p_kept[3 * i] = k.base);
  delete from mqueue.floors where topic_id = any (p_topics);
  insert into mqueue.floors (topic_id, part, floor, next, at)
    select p_floors[5 * i - 4], p_floors[5 * i - 3], p_floors[5 * i - 2], p_floors[5 * i - 1], p_floors[5 * i]
    from generate_series(1, cardinality(p_floors) / 5) i;
  delete from mqueue.late where topic_id = any (p_topics);
  insert into mqueue.late (topic_id, part, base, count, at)
    select p_late[5 * i - 4], p_late[5 * i - 3], p_late[5 * i - 2], p_late[5 * i - 1], p_late[5 * i]
    from generate_series(1, cardinality(p_late) / 5) i;
end $$;

--   p_numbers   of each transaction: virtual shard, time;   p_names   of each: namespace, name
create function mqueue.take_transactions(p_vshard bigint, p_numbers bigint[], p_names text[]) returns void
language plpgsql as $$
begin
  perform mqueue.check_incoming(p_vshard);
  insert into mqueue.transactions (namespace, name, vshard, at)
    select p_names[2 * i - 1], p_names[2 * i], p_numbers[2 * i - 1], p_numbers[2 * i]
    from generate_series(1, cardinality(p_numbers) / 2) i
    on conflict (namespace, name) do update set vshard = excluded.vshard, at = excluded.at;
end $$;


-- While something comes in no day is dropped and nothing is buried: what was copied has no topic yet that would keep it.

create or replace function mqueue.close_day(p_parent text, p_day date) returns regclass language plpgsql as $$
declare
  v_day regclass;
begin
  perform pg_advisory_xact_lock(-4, 0);
  v_day := to_regclass('mqueue.' || p_parent || '_' || to_char(p_day, 'YYYYMMDD'));
  if v_day is not null then
    perform set_config('lock_timeout', '500', true);
    execute format('lock table %s in share mode', v_day);
  end if;
  if exists (select from mqueue.vshards where state = 'incoming') then
    return null;
  end if;
  return v_day;
exception when undefined_table then  -- somebody dropped it while we waited to be let in
  return null;
end $$;

create or replace function mqueue.bury(p_limit bigint) returns boolean language plpgsql as $$
declare
  v_dead int;
  v_rows bigint;
  v_more boolean := false;
begin
  if exists (select from mqueue.vshards where state = 'incoming') then
    return false;
  end if;
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
