"""Everything that takes part."""

from benchmarks import naive, ours, peers, web
from benchmarks.contender import BARE, Contender

# Who is compared with whom stands side by side, and is measured within seconds in every round.
CONTENDERS: tuple[Contender, ...] = (
    Contender(system=BARE, store="none", app=web.bare, cases=()),
    Contender(system="idle-base-http-middleware", store="none", app=web.idle_middleware, cases=()),
    Contender(
        system="fastapi-idempotency-key",
        store="redis",
        open=web.in_process(peers.fastapi_idempotency_key_redis),
        app=peers.fastapi_idempotency_key_redis,
        is_peer=True,
    ),
    Contender(
        system="nebis",
        store="postgres",
        open=ours.async_facade(ours.postgres_asyncpg),
        app=ours.protected(ours.postgres_asyncpg),
    ),
    Contender(
        system="naive-psycopg", store="postgres", open=naive.psycopg_async, app=web.around_call(naive.psycopg_async)
    ),
    Contender(
        system="nebis",
        store="postgres",
        open=ours.async_facade(ours.postgres_asyncpg, single_transaction=True),
        cases=("single_tx",),
    ),
    Contender(
        system="naive-asyncpg", store="postgres", open=naive.asyncpg_async, app=web.around_call(naive.asyncpg_async)
    ),
    Contender(system="naive-psycopg-autocommit", store="postgres", open=naive.psycopg_autocommit),
    Contender(
        system="nebis-psycopg",
        store="postgres",
        open=ours.async_facade(ours.postgres),
        app=ours.protected(ours.postgres),
    ),
    Contender(
        system="nebis-psycopg",
        store="postgres",
        open=ours.async_facade(ours.postgres, single_transaction=True),
        cases=("single_tx",),
    ),
    Contender(system="naive-psycopg2-threads", store="postgres", open=naive.psycopg2_threads, uses_threads=True),
    Contender(system="nebis-threads", store="postgres", open=ours.blocking_facade(ours.postgres), uses_threads=True),
    Contender(
        system="naive-psycopg2-threads-one-core",
        store="postgres",
        open=naive.psycopg2_threads,
        uses_threads=True,
        is_held_to_one_core=True,
    ),
    Contender(
        system="nebis-threads-one-core",
        store="postgres",
        open=ours.blocking_facade(ours.postgres),
        uses_threads=True,
        is_held_to_one_core=True,
    ),
    Contender(
        system="nebis-threads",
        store="postgres",
        open=ours.blocking_facade(ours.postgres, single_transaction=True),
        cases=("single_tx",),
        uses_threads=True,
    ),
    Contender(system="naive-sqlite", store="sqlite", open=naive.sqlite_threads, uses_threads=True),
    Contender(system="nebis", store="sqlite", open=ours.async_facade(ours.sqlite), app=ours.protected(ours.sqlite)),
    Contender(system="nebis-threads", store="sqlite", open=ours.blocking_facade(ours.sqlite), uses_threads=True),
    Contender(system="naive-sqlite-async", store="sqlite", open=naive.sqlite_async),
    Contender(
        system="fastapi-idempotency-key",
        store="sqlite",
        open=web.in_process(peers.fastapi_idempotency_key_sqlite),
        app=peers.fastapi_idempotency_key_sqlite,
        is_peer=True,
    ),
    Contender(system="pyidempotent", store="redis", open=peers.pyidempotent, app=peers.pyidempotent_app, is_peer=True),
    Contender(system="aws-lambda-powertools", store="redis", open=peers.powertools, uses_threads=True, is_peer=True),
    Contender(system="idemkey", store="sqlite", open=peers.idemkey, uses_threads=True, is_peer=True),
    Contender(
        system="asgi-idempotency-header",
        store="redis",
        open=web.in_process(peers.asgi_idempotency_header),
        app=peers.asgi_idempotency_header,
        is_peer=True,
    ),
    Contender(
        system="fastapi-idempotency",
        store="postgres",
        open=web.in_process(peers.fastapi_idempotency),
        app=peers.fastapi_idempotency,
        is_peer=True,
    ),
    Contender(
        system="fastidempotent",
        store="postgres",
        open=web.in_process(peers.fastidempotent_postgres),
        app=peers.fastidempotent_postgres,
        is_peer=True,
    ),
    Contender(
        system="fastidempotent",
        store="sqlite",
        open=web.in_process(peers.fastidempotent_sqlite),
        is_peer=True,
    ),
    Contender(system="dbos", store="postgres", open=peers.dbos, is_peer=True),
)


def contender_of(name: str) -> Contender:
    """Return the contender of this name; raise `KeyError` if there is none."""
    return {contender.name: contender for contender in CONTENDERS}[name]
