"""A page in one process of several says so, wherever it shows a flag or sets one."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.dflag.page.asking import BROWSER, OPEN, ask, put
from wigwag import dflag
from wigwag.dflag.page.messages import PageRequest, Response
from wigwag.dflag.page.site import Site

FORKED = """
import json, os, sys
from wigwag import dflag
from wigwag.dflag.page.messages import PageRequest
from wigwag.dflag.page.site import Access, Site

flags = dflag.FlagSet("shop")
rate = flags.int("rate", 10)
site = Site(flags, access=Access(unauthenticated=True))
later = []

def put(site, value):
    headers = {"host": "localhost", "content-type": "application/json"}
    return json.loads(site(PageRequest("PUT", "/flags/rate", "", headers, b'{"value": %d}' % value)).body)["warning"]

before = put(site, 20)
reader, writer = os.pipe()
child = os.fork()
told = {"pid": os.getpid(), "before": before, "after": put(site, 30), "fresh": put(Site(flags, access=site.access), 40)}
if child == 0:
    os.write(writer, json.dumps(told).encode())
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps({"parent": told, "child": json.loads(os.read(reader, 65536))}))
"""


def shop() -> Site:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    return Site(flags, access=OPEN)


class Workers(Site):
    """A page whose server says that it has several processes."""

    def __call__(self, request: PageRequest) -> Response:
        return super().__call__(replace(request, multiprocess=True))


def workers() -> Site:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    return Workers(flags, access=OPEN)


def test_the_parent_and_the_child_of_a_fork_both_say_that_they_are_one_of_several() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    for side in (told["parent"], told["child"]):
        assert side["before"] is None
        assert side["after"].startswith(f"this is process {side['pid']} only: ")
        assert side["fresh"] is None  # made after the fork, by a program that knows what it does


def test_one_process_has_nothing_to_say_about_it() -> None:
    site = shop()
    assert ask(site, "GET", "/").json["warning"] is None
    assert put(site, "rate", 20).json["warning"] is None
    assert ask(site, "POST", "/set?name=rate&value=30").text == 'Success "rate" -> "30"\n'
    assert "this is process" not in ask(site, "GET", "/", **BROWSER).text


def test_where_the_server_has_workers_every_answer_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wigwag.dflag.page")
    site = workers()
    assert "use the ConfigMap" in ask(site, "GET", "/").json["warning"]
    assert "use the ConfigMap" in put(site, "rate", 20).json["warning"]
    success, warning = ask(site, "POST", "/set?name=rate&value=30").text.splitlines()
    assert (success, warning.startswith("Warning: this is process")) == ('Success "rate" -> "30"', True)
    assert "this is process" in ask(site, "GET", "/", **BROWSER).text
    assert "'10' -> '20', in this process only" in caplog.text
