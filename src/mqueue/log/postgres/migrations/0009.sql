-- Who makes a topic without a limit counts nothing: in a namespace of 50,000 that took 25 to 50 ms for each.
-- nodes: 7

-- The one that is there, or a new one; no row: there are p_limit in its namespace already. Null: as many as are wanted.
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
  if p_limit is not null then
    if p_limit <= (select count(*) from mqueue.topics t
        where t.namespace = p_namespace and t.deleted_at is null and not t.hidden) then
      return;
    end if;
  end if;
  insert into mqueue.topics (topic_id, namespace, name, vshard, settings, first_settings, made_at, hidden)
    overriding system value values (mqueue.next_topic(), p_namespace, p_name, p_vshard, p_settings, p_settings,
      coalesce(p_now, mqueue.now_ms()), p_hidden);
  return query select t, true from mqueue.topics t
    where t.namespace = p_namespace and t.name = p_name and t.deleted_at is null;
end $$;
