-- A server that was promoted, or restored, may lack what nodes have heard of its predecessor: there nobody owns anything
-- until he has read what is there.
-- nodes: 7
--
-- Locks besides those of 0001 and 0007: (-8, place) of a session: whoever brings something here from that server.
-- (-9, 0): a timeline begins.

create function mqueue.timeline() returns bigint language sql
return ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::bigint;

-- The first that is said on every connection of a node. On a timeline that nobody has noted yet all sessions are over, and
-- all epochs of owners: no statement that was made before is done after it. Waits for no standby, as there may be none.
create function mqueue.begin_timeline() returns void language plpgsql as $$
declare
  v_now jsonb := to_jsonb(mqueue.timeline());
  v_noted jsonb := (select value from mqueue.meta where key = 'timeline');
begin
  if v_noted = v_now then
    return;
  end if;
  perform pg_advisory_xact_lock(-9, 0);  -- and look again
  v_noted := (select value from mqueue.meta where key = 'timeline');
  if v_noted = v_now then
    return;
  end if;
  perform set_config('synchronous_commit', 'local', true);
  insert into mqueue.meta (key, value) values ('timeline', v_now) on conflict (key) do update set value = excluded.value;
  if v_noted is not null then
    update mqueue.sessions set until = clock_timestamp() where until > clock_timestamp();
    update mqueue.vshards set owner = null, owner_epoch = owner_epoch + 1 where owner is not null;
    -- Numbers that topics got which are not here are not given again soon: nodes may know them.
    perform nextval('mqueue.topics_topic_id_seq') from generate_series(1, 1024);
  end if;
end $$;
