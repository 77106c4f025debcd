-- Standbys: who asks for it is answered only when one has confirmed; what nodes have seen of servers is kept.
-- nodes: 5

-- Refuses, unless whatever this transaction commits waits until a synchronous standby has it on disk. The names are
-- those that this session goes by: they do not change while a statement runs.
create function mqueue.check_quorum() returns boolean language plpgsql as $$
begin
  if current_setting('synchronous_standby_names') = '' then
    raise exception 'synchronous_standby_names is empty' using errcode = 'MQ008';
  end if;
  if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  return true;
end $$;

-- What nodes have seen of the servers of other shards: the highest timeline is the last that was promoted. Kept here,
-- since a server that was overtaken, or set back to a backup, does not know it.
create table mqueue.sightings (
  shard int not null,
  system bigint not null,
  timeline int not null,
  at bigint not null,
  primary key (shard, system, timeline)
);

-- Which standbys confirmed commits, from when on; none: no commit waited for one.
create table mqueue.standbys (
  at bigint primary key,
  names text[] not null
);

-- Notes who confirms commits, if that has changed; whether anybody has to. It does not wait for a standby itself: there
-- may be none just now. To see who they are takes the right to read statistics (pg_monitor).
create function mqueue.note_standbys() returns boolean language plpgsql as $$
declare
  v_wait boolean := current_setting('synchronous_standby_names') <> '';
  v_names text[] := '{}';
begin
  if v_wait then
    v_names := array(select distinct r.application_name from pg_stat_replication r
      where r.state = 'streaming' and r.sync_state in ('sync', 'quorum') order by 1);
  end if;
  if v_names is distinct from coalesce((select s.names from mqueue.standbys s order by s.at desc limit 1), '{}')
      and pg_try_advisory_xact_lock(-6, 0) then
    perform set_config('synchronous_commit', 'local', true);
    insert into mqueue.standbys (at, names) values (mqueue.now_ms(), v_names) on conflict do nothing;
  end if;
  return v_wait;
end $$;
