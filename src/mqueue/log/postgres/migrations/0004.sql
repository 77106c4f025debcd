-- Nothing is written down for who is not the owner. Topics change with the journal, and nothing is appended that was
-- made for what a topic was before.

alter table mqueue.topics add version bigint not null default 1;     -- rises whenever its settings change

-- Puts frames at the ends of their partitions: of each its offset (-1: it is there already) and time. Null: this
-- stretch of the log was flushed before. All or nothing, and nothing is locked while the network is read.
--   p_wal, p_from, p_to   a stretch of a node's log, which must follow the one flushed before
--   p_once                leave out what is there already: frames that may be sent a second time
--   p_frames              of each frame: virtual shard, map epoch, topic, partition, count, first id, size, version of
--                         the topic that it was made for, or -1; sorted by the first, the third and the fourth
--   p_bytes               of each frame: head, body
--   p_keys                idempotency keys: the number of the frame, from 1, the row in it, from 0, priority, due
--   p_digests             of each: key, payload
--   p_windows             topic, for how long claims on its keys hold; for ever where it is not named
-- Written for few statements and few parameters: of a small frame most of the time goes into these, not into what
-- they do.
create or replace function mqueue.append(
  p_now bigint, p_wal uuid, p_from bigint, p_to bigint, p_once boolean, p_frames bigint[], p_bytes bytea[],
  p_keys bigint[] default '{}', p_digests bytea[] default '{}', p_windows bigint[] default '{}',
  out bases bigint[], out ats bigint[]) language plpgsql as $$
declare
  n int := cardinality(p_frames) / 8;
  v_now bigint := coalesce(p_now, mqueue.now_ms());
  v_vshard bigint;
  v_epoch bigint;
  v_topic int;
  v_part int;
  v_next bigint;
  v_at bigint;
  v_dropped_next bigint;
  v_dropped_at bigint;
  v_version bigint;
begin
  for i in 1..n loop
    if v_vshard is distinct from p_frames[8 * i - 7] then
      v_vshard := p_frames[8 * i - 7];
      if pg_advisory_xact_lock_shared(v_vshard) is null then end if;
    end if;
  end loop;
  if p_wal is not null and not mqueue.flush(p_wal, p_from, p_to) then
    return;
  end if;
  bases := array_fill(-1::bigint, array[n]);
  ats := bases;
  for i in 1..n loop
    if v_topic is distinct from p_frames[8 * i - 5] or v_part <> p_frames[8 * i - 4]
        or v_vshard <> p_frames[8 * i - 7] or v_epoch <> p_frames[8 * i - 6] then
      v_vshard := p_frames[8 * i - 7];
      v_epoch := p_frames[8 * i - 6];
      v_topic := p_frames[8 * i - 5];
      v_part := p_frames[8 * i - 4];
      if pg_advisory_xact_lock(v_topic, v_part) is null then end if;
      -- Times never fall with the offset: only if there is no frame of this day or later older ones are looked at.
      select f.next, f.at, o.next, o.at, t.version into v_next, v_at, v_dropped_next, v_dropped_at, v_version
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
    if p_frames[8 * i] >= 0 and p_frames[8 * i] <> v_version then
      raise exception 'topic % has changed', v_topic using errcode = 'MQ006';
    end if;
    ats[i] := v_at;
    continue when p_once and mqueue.known(p_frames[8 * i - 2], p_frames[8 * i - 3]);
    insert into mqueue.frames (day, topic_id, part, base, count, base_id, at, size, head, body)
      values (mqueue.day_of(v_at), v_topic, v_part, v_next, p_frames[8 * i - 3], p_frames[8 * i - 2], v_at,
        p_frames[8 * i - 1], p_bytes[2 * i - 1], p_bytes[2 * i]);
    bases[i] := v_next;
    v_next := v_next + p_frames[8 * i - 3];
  end loop;
  if cardinality(p_keys) > 0 then
    perform mqueue.claim(p_frames, bases, ats, p_keys, p_digests, p_windows);
  end if;
end $$;

-- Claims the keys of frames that were appended just now. Sorted, so that no two wait for each other.
create or replace function mqueue.claim(p_frames bigint[], p_base bigint[], p_at bigint[], p_keys bigint[], p_digests bytea[],
  p_windows bigint[]) returns void language plpgsql as $$
declare
  n int := cardinality(p_keys) / 4;
  v_made int;
begin
  insert into mqueue.idempotency as c (topic_id, key, digest, id, part, "offset", priority, due, made_at)
    select p_frames[8 * k.f - 5], p_digests[2 * k.i - 1], p_digests[2 * k.i], p_frames[8 * k.f - 2] + k.r,
      p_frames[8 * k.f - 4], p_base[k.f] + k.r, p_keys[4 * k.i - 1], p_keys[4 * k.i], p_at[k.f]
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

create or replace function mqueue.set_topic(p_owner uuid, p_epoch bigint, p_topic bigint, p_settings bytea) returns void
language plpgsql as $$
declare
  v_vshard bigint;
begin
  select vshard into v_vshard from mqueue.topics where topic_id = p_topic and deleted_at is null;
  if v_vshard is not null then
    perform pg_advisory_xact_lock(v_vshard);
    perform mqueue.check_owner(p_owner, p_epoch, v_vshard);
    update mqueue.topics set settings = p_settings, version = version + 1
      where topic_id = p_topic and deleted_at is null;
    if found then
      return;
    end if;
  end if;
  raise exception 'topic % is not here', p_topic using errcode = 'MQ005';
end $$;

-- As before, and: frames that stand later in the order are told with the virtual shard and the epoch of who says so,
-- and he has to be its owner, also if he says nothing else.
--   p_entries   of each: virtual shard, epoch, sequence, time; sorted by the first
--   p_blocks    blocks of offsets that an entry speaks of: the number of the entry, from 1, topic, partition, block
--   p_late      virtual shard, epoch; topic, partition, base, count, time in the order
create or replace function mqueue.record(
  p_owner uuid, p_entries bigint[], p_body bytea[], p_blocks bigint[], p_late bigint[])
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
  if cardinality(p_late) > 0 then
    perform mqueue.hold(array(
      select p_entries[4 * i - 3] from generate_series(1, n) i
      union select p_late[7 * i - 6] from generate_series(1, cardinality(p_late) / 7) i));
    perform from generate_series(1, cardinality(p_late) / 7) i
      where not exists (select from mqueue.vshards s where s.vshard = p_late[7 * i - 6] and s.owner = p_owner
        and s.owner_epoch = p_late[7 * i - 5] and s.state = 'active');
    if found then
      raise exception 'a virtual shard is owned by another' using errcode = 'MQ003';
    end if;
  end if;
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
      select p_late[7 * i - 4], p_late[7 * i - 3], p_late[7 * i - 2], p_late[7 * i - 1], p_late[7 * i]
      from generate_series(1, cardinality(p_late) / 7) i
      on conflict (topic_id, part, base) do update set count = excluded.count, at = excluded.at;
  end if;
end $$;

-- Both at once: see record and append.
create or replace function mqueue.commit(
  p_owner uuid, p_entries bigint[], p_body bytea[], p_blocks bigint[], p_late bigint[],
  p_now bigint, p_frames bigint[], p_bytes bytea[],
  p_keys bigint[] default '{}', p_digests bytea[] default '{}', p_windows bigint[] default '{}',
  out bases bigint[], out ats bigint[]) language plpgsql as $$
begin
  perform mqueue.hold(array(
    select p_entries[4 * i - 3] from generate_series(1, cardinality(p_entries) / 4) i
    union select p_late[7 * i - 6] from generate_series(1, cardinality(p_late) / 7) i
    union select p_frames[8 * i - 7] from generate_series(1, cardinality(p_frames) / 8) i));
  perform mqueue.record(p_owner, p_entries, p_body, p_blocks, p_late);
  select a.bases, a.ats into bases, ats
    from mqueue.append(p_now, null, 0, 0, false, p_frames, p_bytes, p_keys, p_digests, p_windows) a;
end $$;

-- All of that, and what becomes of topics by it.
--   p_topics     of each: topic, epoch of its virtual shard, 1 if it is deleted
--   p_settings   of each: its settings; empty if it is deleted
-- Locks are taken in the order of virtual shards, as everywhere: whoever changes a topic waits for appends that are
-- running, and those that come later know of it.
create function mqueue.commit_topics(
  p_topics bigint[], p_settings bytea[],
  p_owner uuid, p_entries bigint[], p_body bytea[], p_blocks bigint[], p_late bigint[],
  p_now bigint, p_frames bigint[], p_bytes bytea[],
  p_keys bigint[] default '{}', p_digests bytea[] default '{}', p_windows bigint[] default '{}',
  out bases bigint[], out ats bigint[]) language plpgsql as $$
declare
  v_lock record;
begin
  for v_lock in
    select u.v, bool_or(u.alone) as alone from (
      select t.vshard::bigint as v, true as alone from generate_series(1, cardinality(p_topics) / 3) i
        join mqueue.topics t on t.topic_id = p_topics[3 * i - 2]
      union all select p_entries[4 * i - 3], false from generate_series(1, cardinality(p_entries) / 4) i
      union all select p_late[7 * i - 6], false from generate_series(1, cardinality(p_late) / 7) i
      union all select p_frames[8 * i - 7], false from generate_series(1, cardinality(p_frames) / 8) i
    ) u group by u.v order by u.v
  loop
    if v_lock.alone then
      perform pg_advisory_xact_lock(v_lock.v);
    else
      perform pg_advisory_xact_lock_shared(v_lock.v);
    end if;
  end loop;
  select c.bases, c.ats into bases, ats from mqueue.commit(p_owner, p_entries, p_body, p_blocks, p_late,
    p_now, p_frames, p_bytes, p_keys, p_digests, p_windows) c;
  for i in 1..cardinality(p_topics) / 3 loop
    if p_topics[3 * i] = 1 then
      perform mqueue.drop_topic(p_owner, p_topics[3 * i - 1], p_topics[3 * i - 2], p_now);
    else
      perform mqueue.set_topic(p_owner, p_topics[3 * i - 1], p_topics[3 * i - 2], p_settings[i]);
    end if;
  end loop;
end $$;
