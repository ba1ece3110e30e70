"""One migration of Django for each file of the store; `tests/integrations/test_django_schema.py` compares them."""
