"""A service that tells each person their own prediction, and nobody another's (`graphveil serve`).

    tokens.py       who may ask: one token for each node, one for the operator, all derived from one secret
    predictions.py  what may be asked: probabilities from an artifact, loaded once
    app.py          the routes
    guard.py        around every request: headers, metrics, refusals, log
    server.py       the listening server, with limits on every connection
    page.py         the page for people

Everything but tokens needs the extra `serve`.
"""
