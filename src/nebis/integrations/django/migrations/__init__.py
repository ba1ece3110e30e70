"""One migration of Django for each file of the store; `tests/transactions/test_django_schema.py` compares them."""
