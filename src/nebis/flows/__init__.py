"""Use cases, one per file: generators that ask, driven alike by the blocking and the asyncio runtime."""
