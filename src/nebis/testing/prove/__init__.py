"""The proof: every layer of verification in one run, one table, one exit code.

    python -m nebis.testing.prove --size ci

It runs in a checkout, since the layers that start processes and servers live with the tests.
"""
