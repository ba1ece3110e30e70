"""Nebis in a Django project. As an installed app it lets `manage.py migrate` make the tables of the store."""
