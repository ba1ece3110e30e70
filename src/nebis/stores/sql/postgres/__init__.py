"""PostgreSQL: sessions for psycopg 3 and asyncpg, and what a server's errors prove."""
