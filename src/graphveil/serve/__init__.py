"""A service that tells each person their own prediction, and nobody another's (`graphveil serve`).

    answers.py      who may ask, and what they get: one token for each node, and its prediction
    app.py          the routes
    guard.py        around every request: headers, metrics, refusals, log
    server.py       the listening server, with limits on every connection
    page.py         the page for people

Everything but answers.py needs the extra `serve`.
"""
