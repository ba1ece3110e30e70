"""How fast Nebis is, beside what it is compared with: `make bench`."""
