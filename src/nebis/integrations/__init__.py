"""Web frameworks, each in a module of its name. Only the module of a framework imports it."""
