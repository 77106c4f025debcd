-- Where transactions are staged: the first who stages something says, all others follow. Each name has its row at the
-- server that its namespace and name lead to, wherever its topics live.

create table mqueue.transactions (
  namespace text not null,
  name text not null,
  vshard int not null,
  at bigint not null,                       -- when it was begun
  primary key (namespace, name)
);
create index on mqueue.transactions (at);
