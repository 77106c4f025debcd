-- Nothing is written down for who is not the owner, and topics change with the journal.

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
    union select p_frames[7 * i - 6] from generate_series(1, cardinality(p_frames) / 7) i));
  perform mqueue.record(p_owner, p_entries, p_body, p_blocks, p_late);
  select a.bases, a.ats into bases, ats
    from mqueue.append(p_now, null, 0, 0, false, p_frames, p_bytes, p_keys, p_digests, p_windows) a;
end $$;

-- All of that, and what becomes of topics by it.
--   p_topics     of each: topic, epoch of its virtual shard, 1 if it is deleted
--   p_settings   of each: its settings; empty if it is deleted
-- Locks are taken in the order of virtual shards, as everywhere: whoever deletes waits for appends that are running.
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
      select t.vshard::bigint as v, p_topics[3 * i] = 1 as alone from generate_series(1, cardinality(p_topics) / 3) i
        join mqueue.topics t on t.topic_id = p_topics[3 * i - 2]
      union all select p_entries[4 * i - 3], false from generate_series(1, cardinality(p_entries) / 4) i
      union all select p_late[7 * i - 6], false from generate_series(1, cardinality(p_late) / 7) i
      union all select p_frames[7 * i - 6], false from generate_series(1, cardinality(p_frames) / 7) i
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
