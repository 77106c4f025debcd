-- Drops the journal of a day; false: there is no such day, or some of it is needed. That is
--   what is newer than the checkpoints: whoever takes over folds it;
--   what tells of messages that are there: of a partition whose oldest message above the floor is of that day or an
--   older one, or of a piece that is kept below a floor.
-- So the journal goes with the days of frames, but for pieces, each of which keeps the days that speak of its block of
-- 4096 offsets. Looks into an index once for each partition that the day speaks of, and for each piece.
--   p_old   the day is so old that it goes, whatever it tells of
drop function mqueue.retire_journal(date);
create function mqueue.retire_journal(p_day date, p_old boolean default false) returns boolean language plpgsql as $$
declare
  v_day regclass;
  v_index regclass := to_regclass('mqueue.journal_index_' || to_char(p_day, 'YYYYMMDD'));
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
  if not v_needed and not p_old and v_index is not null then
    execute format('with recursive k as (
        (select topic_id, part from %1$s order by 1, 2 limit 1)
        union all
        select n.topic_id, n.part from k cross join lateral (
          select i.topic_id, i.part from %1$s i where (i.topic_id, i.part) > (k.topic_id, k.part)
          order by 1, 2 limit 1) n
      ) select exists (
        select from k
        join mqueue.topics t on t.topic_id = k.topic_id and t.deleted_at is null
        left join mqueue.floors o on o.topic_id = k.topic_id and o.part = k.part
        cross join lateral (
          select f.day from mqueue.frames f
          where f.topic_id = k.topic_id and f.part = k.part and f.base > coalesce(o.floor, 0) - 4096
            and f.base + f.count > coalesce(o.floor, 0) order by f.base limit 1) f
        where k.part >= 0 and f.day <= %2$L)
      or exists (
        select from mqueue.frames_kept p
        join mqueue.topics t on t.topic_id = p.topic_id and t.deleted_at is null
        where mqueue.day_of(p.at) <= %2$L and exists (
          select from %1$s i where i.topic_id = p.topic_id and i.part = p.part
            and i.block between p.base / 4096 and (p.base + p.count - 1) / 4096))', v_index, p_day)
      into v_needed;
  end if;
  if v_needed then
    return false;
  end if;
  perform mqueue.drop_day('journal', p_day);
  perform mqueue.drop_day('journal_index', p_day);
  return true;
end $$;
