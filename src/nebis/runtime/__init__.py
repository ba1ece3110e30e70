"""The two worlds that perform what flows ask: blocking threads and an asyncio loop."""
