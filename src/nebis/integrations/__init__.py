"""Web frameworks, each in a module of its name. Only the module of a framework imports it.

All of them have one shape. `routes.protection` checks the choices of an endpoint once. For each request, after
authentication and validation: `Protection.prepare` makes what the engine runs, `begin` of the façade claims or says how
the request ends, the endpoint runs, `Protection.ended` says what its answer means, `settle` stores it, and
`Protection.answer` says what is sent. Every error on the way is told by `Protection.refused`.
"""
