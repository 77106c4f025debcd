-- What all nodes go by and may change while they run, as whole documents. Only the first server of a cluster has any.

create table mqueue.documents (
  name text primary key,
  version bigint not null,                  -- one more each time it is written: fences who has read an older one
  body bytea not null
);
