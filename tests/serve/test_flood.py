"""Ten thousand requests at once, over more connections than the service takes."""

import asyncio
import json
from collections import Counter

import pytest

from support.service import is_complete, request

uvloop = pytest.importorskip("uvloop", reason="needs the extra: pip install 'graphveil[serve]'")

SOCKETS, EACH = 1_250, 8


@pytest.mark.slow
def test_ten_thousand_requests_at_once(service):
    nodes = [str(number) for number in range(120)]
    tokens = [service.tokens.of_node(node) for node in nodes]
    seen = uvloop.run(flood(service.port, nodes, tokens))
    assert sum(seen.values()) == SOCKETS * EACH
    assert set(seen) <= {200, 401, 503, "closed"}
    # How many have to wait depends on how fast they come; test_refusals.py makes sure that some would.
    assert min(seen[200], seen[401]) > 0
    assert seen["closed"] < 100
    assert service.get("/health").json() == {"status": "ok"}
    assert service.ask("3", tokens[3]).status_code == 200


async def flood(port, nodes, tokens):
    seen = Counter()
    together = asyncio.Barrier(SOCKETS)

    async def ask_often(first):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await together.wait()
        for number in range(first, first + EACH):
            place, wrong = number % len(nodes), number % 2
            try:
                if writer.is_closing() or reader.at_eof():
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request(nodes[place], tokens[(place + wrong) % len(nodes)]))
                answer = b""
                while not is_complete(answer) and (part := await asyncio.wait_for(reader.read(65536), 60)):
                    answer += part
            except OSError:
                answer = b""
            seen[check(answer, nodes[place], wrong)] += 1
            if not answer or b"connection: close" in answer:
                writer.close()
        writer.close()

    await asyncio.gather(*(ask_often(first) for first in range(SOCKETS)))
    return seen


def check(answer, node, wrong):
    if not answer:
        return "closed"
    status = int(answer.split()[1])
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    if status == 200:
        assert not wrong
        assert body["node"] == node
    else:
        assert list(body) == ["detail"]
    return status
